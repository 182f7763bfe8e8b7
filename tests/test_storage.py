"""Estimates survive a file with everything in them, and foreign files are refused."""

import json

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.estimate import Diagnostics, Estimate

FULL = Estimate(
    [1.0, 3.0],
    [[0.04, 0.02], [0.02, 0.09]],
    names=("dose: high", "größe"),
    method="Infinitesimal(solver=cholesky)",
    diagnostics=Diagnostics(
        drift=1e-9, passes=7, notes={"lam": np.float64(0.3), "why": "small", "most": np.inf}
    ),
    influence=np.arange(6.0).reshape(3, 2),
    parts={"model": [[0.03, 0.02], [0.02, 0.05]], "evaluation": [[0.01, 0.0], [0.0, 0.04]]},
    draws=np.random.default_rng(0).normal(size=(5, 2)),
)
SCALAR = Estimate(2.5, [[0.16]], names=("psi",), method="by hand")


@pytest.mark.parametrize("estimate", [FULL, SCALAR], ids=["full", "scalar"])
@pytest.mark.parametrize("name", ["est.npz", "est"])
def test_there_and_back(estimate, name, tmp_path):
    estimate.save(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    other = Estimate.load(tmp_path / name)
    assert isinstance(other.value, float) == isinstance(estimate.value, float)
    for field in ("value", "covariance", "influence", "draws"):
        ours, theirs = getattr(estimate, field), getattr(other, field)
        assert (ours is None) == (theirs is None)
        np.testing.assert_array_equal(theirs, ours) if ours is not None else None
    assert (other.names, other.method) == (estimate.names, estimate.method)
    assert list(other.parts) == list(estimate.parts)
    for part, covariance in estimate.parts.items():
        np.testing.assert_array_equal(other.parts[part], covariance)
    assert other.summary() == estimate.summary()
    assert repr(other.diagnostics) == repr(Diagnostics(**_plain(estimate.diagnostics)))


def _plain(diagnostics):
    return {**vars(diagnostics), "notes": {k: _python(v) for k, v in diagnostics.notes.items()}}


def _python(number):
    return number.item() if isinstance(number, np.generic) else number


def test_a_fresh_estimate_is_saved(tmp_path):
    y = np.array([3, 0, 2, 5, 1, 4, 2, 3])
    model = idm.from_loglik(lambda th: y * th[0] - np.exp(th[0]), start=[0.0])
    estimate = idm.infer(model, lambda th: np.exp(th[0]), robust=True)
    estimate.save(str(tmp_path / "rate"))
    assert Estimate.load(str(tmp_path / "rate")).confidence_interval() == (
        estimate.confidence_interval()
    )


def foreign_files(folder):
    np.savez(folder / "arrays.npz", value=np.ones(3))
    np.save(folder / "array.npy", np.ones(3))
    np.savez(folder / "other.npz", header=np.array(json.dumps({"format": "another"})))
    np.savez(folder / "objects.npz", header=np.array({"format": 1}, dtype=object))
    (folder / "text.npz").write_text("estimate, std_error\n1, 2\n")
    (folder / "empty.npz").write_bytes(b"")
    return sorted(folder.iterdir())


def test_foreign_files_are_refused(tmp_path):
    for path in foreign_files(tmp_path):
        with pytest.raises(ValueError, match="not an estimate"):
            Estimate.load(path)
    with pytest.raises(FileNotFoundError):
        Estimate.load(tmp_path / "nowhere")


def test_a_truncated_file_is_refused(tmp_path):
    FULL.save(tmp_path / "est")
    whole = (tmp_path / "est").read_bytes()
    (tmp_path / "est").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        Estimate.load(tmp_path / "est")


def test_a_later_format_is_refused_by_its_version(tmp_path):
    header = json.dumps({"format": "implicit-delta estimate", "version": 99})
    np.savez(tmp_path / "est.npz", header=np.array(header))
    with pytest.raises(ValueError, match="version 99"):
        Estimate.load(tmp_path / "est.npz")


def test_data_frames_of_both_libraries_have_the_same_columns():
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    frame = FULL.to_frame(0.9, library="polars")
    assert isinstance(frame, polars.DataFrame)
    assert frame.to_dict(as_series=False) == FULL.to_dict(0.9)
    other = FULL.to_frame(0.9)
    assert isinstance(other, pandas.DataFrame)
    assert other.reset_index().to_dict(orient="list") == FULL.to_dict(0.9)
    with pytest.raises(ValueError, match="pandas"):
        FULL.to_frame(library="spark")
