"""Several methods side by side."""

import numpy as np
import pytest

import implicit_delta as idm


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(60), rng.normal(size=60)])
    y = rng.poisson(np.exp(X @ [0.5, 0.3]))
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.exp(X @ b),
        start=[0.0, 0.0],
        score=lambda b: (y - np.exp(X @ b))[:, None] * X,
    )


def rate(b):
    return np.exp(b[1])


def test_every_default_method_has_its_own_answer(model):
    table = idm.compare(model, rate)
    assert table.methods == ["Infinitesimal", "FiniteDifference", "robust", "Bootstrap", "profile"]
    answers = {row.method: row for row in table.rows}
    direct = {
        "Infinitesimal": idm.infer(model.at(model.theta), rate, idm.Infinitesimal()),
        "FiniteDifference": idm.infer(model.at(model.theta), rate, idm.FiniteDifference()),
        "robust": idm.infer(model.at(model.theta), rate, robust=True),
        "Bootstrap": idm.infer(model.at(model.theta), rate, idm.Bootstrap(rng=0)),
    }
    for name, estimate in direct.items():
        row = answers[name]
        assert row.estimate == estimate.value
        assert row.std_error == pytest.approx(estimate.standard_error, rel=1e-9)
        np.testing.assert_allclose([row.low, row.high], estimate.confidence_interval(), rtol=1e-9)
        assert row.passes == estimate.diagnostics.passes
    np.testing.assert_allclose(
        [answers["profile"].low, answers["profile"].high],
        idm.profile(model, rate).interval,
        rtol=1e-9,
    )
    assert np.isnan(answers["profile"].std_error)


def test_costs_are_relative_to_the_fastest(model):
    rows = idm.compare(model, rate, [idm.Infinitesimal(), idm.FiniteDifference()]).rows
    ratios = np.array([row.time_ratio for row in rows])
    seconds = np.array([row.seconds for row in rows])
    assert ratios.min() == 1.0
    np.testing.assert_allclose(ratios, seconds / seconds.min())
    assert all(row.passes > 0 for row in rows)


def test_methods_are_named_by_a_mapping_or_by_themselves(model):
    listed = idm.compare(
        model, rate, [idm.Infinitesimal(), idm.Infinitesimal(damping=0.1), idm.profile, idm.infer]
    )
    assert listed.methods == ["Infinitesimal", "Infinitesimal(damping=0.1)", "profile", "infer"]
    mapped = idm.compare(
        model,
        rate,
        {
            "plain": idm.Infinitesimal(),
            "clustered": lambda m, psi: idm.infer(m, psi, clusters=np.arange(60) // 3),
        },
        confidence_level=0.8,
    )
    assert mapped.methods == ["plain", "clustered"]
    assert mapped.results["clustered"].standard_error == pytest.approx(mapped.rows[1].std_error)
    np.testing.assert_allclose(
        (mapped.rows[0].low, mapped.rows[0].high),
        mapped.results["plain"].confidence_interval(0.8),
    )


def test_several_evaluations(model):
    pytest.importorskip("matplotlib")
    table = idm.compare(model, lambda b: np.exp(b), [idm.Infinitesimal(), idm.profile])
    assert [(row.method, row.term) for row in table.rows] == [
        ("Infinitesimal", "psi[0]"),
        ("Infinitesimal", "psi[1]"),
        ("profile", "psi[0]"),
        ("profile", "psi[1]"),
    ]
    np.testing.assert_allclose(
        [table.rows[3].low, table.rows[3].high],
        idm.profile(model, lambda b: np.exp(b[1])).interval,
        rtol=1e-8,
    )
    assert table.names == ["psi[0]", "psi[1]"]
    assert len(table.plot().get_yticks()) == 4


def test_a_method_that_refuses_does_not_spoil_the_rest(model):
    ggn = idm.Infinitesimal(curvature="ggn")  # a plain log-likelihood has none
    table = idm.compare(model, rate, {"good": idm.Infinitesimal(), "ggn": ggn})
    assert np.isfinite(table.rows[0].std_error)
    assert np.isnan(table.rows[1].estimate)
    assert "from_residuals" in table.failures["ggn"]
    assert "ggn: " in repr(table)
    assert list(table.results) == ["good"]


def test_table_frame_and_picture(model):
    pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    table = idm.compare(model, rate, [idm.Infinitesimal(), idm.profile])
    lines = repr(table).splitlines()
    assert lines[0].split() == [
        "estimate", "std_error", "conf_low", "conf_high", "seconds", "passes", "time_ratio",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["Infinitesimal", "profile"]
    frame = table.to_frame()
    assert frame.loc[("profile", "rate"), "conf_low"] == table.rows[1].low
    assert table._repr_html_().count("<tr>") == 3
    labels = [label.get_text() for label in table.plot().get_yticklabels()]
    assert labels == ["Infinitesimal", "profile"]


@pytest.mark.parametrize(
    ("methods", "error", "message"),
    [
        ([], ValueError, "at least one"),
        (["infinitesimal"], TypeError, "give methods such as"),
        ([lambda m, psi: 1.0], TypeError, "returned a float"),
    ],
)
def test_what_is_no_method(model, methods, error, message):
    with pytest.raises(error, match=message):
        idm.compare(model, rate, methods)
