"""The table of benchmarks: what is measured, stored and printed. Nothing here takes a time."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import implicit_delta as idm
from benchmarks import __main__ as main
from benchmarks import stored, timing
from benchmarks.__main__ import Keep, has_cases, measure_all
from benchmarks.fingerprint import HERE, code, files, fingerprint
from benchmarks.scaling import SIZES, curve_of, exponent
from benchmarks.timing import Case, measure, medians


def test_a_count_is_what_the_case_returns():
    assert measure(Case("passes", 3, lambda: 4)).value == 4.0


def test_rounds_are_interleaved():
    order = []
    measure(Case("a", 1, lambda: order.append("ours"), lambda: order.append("hand"), rounds=3))
    assert order == ["ours", "hand"] * 4  # one to warm up


def test_a_ratio_is_of_medians():
    clock = iter([0.0, 9.0, 9.0, 10.0, 10.0, 12.0, 12.0, 13.0, 13.0, 15.0, 15.0, 16.0])
    times = medians({"ours": int, "hand": int}, 3, lambda: next(clock))
    assert times == {"ours": 2.0, "hand": 1.0}


def test_results_are_kept_by_name_with_versions(tmp_path):
    path = tmp_path / "results.json"
    for value in (5, 4):
        stored.store([measure(Case("passes", 3, lambda value=value: value))], "abc", path)
    stored.store([measure(Case("products", 3, lambda: 1, before=9))], "abc", path)
    rows = json.loads(path.read_text())
    assert {name: row["value"] for name, row in rows.items()} == {"passes": 4.0, "products": 1.0}
    assert rows["products"]["before"] == 9
    assert {"python", "numpy", "scipy"} <= set(rows["passes"]["versions"])
    assert rows["passes"]["code"] == "abc"


class Counted:
    """A module of two cases; the second fails as long as it is told to."""

    __file__ = __file__

    def __init__(self):
        self.measured, self.broken = [], True

    def cases(self):
        yield Case("first", 3, lambda: self.measured.append("first") or 1)
        yield Case("second", 3, self.second)

    def second(self):
        if self.broken:
            raise RuntimeError("interrupted")
        self.measured.append("second")
        return 2


@pytest.fixture
def module(monkeypatch):
    monkeypatch.setattr(main, "fingerprint", lambda module: "abc")  # the library's takes seconds
    return Counted()


@pytest.fixture
def keep(tmp_path):
    return Keep(store=True, path=tmp_path / "results.json")


def test_a_run_that_stores_goes_on_where_it_stopped(module, keep, capsys):
    measure_all(module, "", keep)
    assert "RuntimeError: interrupted" in capsys.readouterr().out
    module.broken = False
    measure_all(module, "", keep)
    assert module.measured == ["first", "second"]
    assert "(kept)" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"again": True}, {"store": False}])
def test_what_is_stored_is_measured_again_on_demand(module, keep, options):
    module.broken = False
    measure_all(module, "", keep)
    measure_all(module, "", replace(keep, **options))
    assert module.measured == ["first", "second"] * 2


@pytest.mark.parametrize("changed", ["code", "versions", "neither", "version of the library"])
def test_numbers_of_other_code_or_packages_are_not_kept(module, keep, changed):
    module.broken = False
    measure_all(module, "", keep)
    rows = stored.load(keep.path)
    for row in rows.values():
        if changed == "code":
            row["code"] = "0" * 12
        if changed == "versions":
            row["versions"]["numpy"] = "1.0"
        if changed == "version of the library":  # the same code under another number
            row["versions"]["implicit-delta"] = "0.1.0"
    keep.path.write_text(json.dumps(rows))
    measure_all(module, "", keep)
    again = changed in ("code", "versions")
    assert module.measured == ["first", "second"] * (2 if again else 1)


def test_rows_without_a_fingerprint_are_measured():
    assert stored.kept(Case("old", 3, int), "abc", {"old": {"value": 1.0, "versions": {}}}) is None


def test_code_is_compared_without_comments_and_docstrings(tmp_path):
    texts = {
        "plain": "def f():\n    return 1\n",
        "explained": '"""About."""\n\n\ndef f():\n    """Return."""\n    return 1  # one\n',
        "other": "def f():\n    return 2\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    plain, explained, other = (code(tmp_path / name) for name in texts)
    assert plain == explained
    assert plain != other


@pytest.mark.slow
def test_fingerprints_are_of_the_library_and_the_module(monkeypatch):
    found = fingerprint(stored), fingerprint(timing)
    assert len(set(found)) == 2
    monkeypatch.setattr("benchmarks.fingerprint._library", lambda: "another library")
    assert not {fingerprint(stored), fingerprint(timing)} & set(found)


def test_the_code_of_a_module_is_that_of_all_it_imports():
    imported = {path.stem for path in files(HERE / "table.py")}
    assert imported == {"table", "timing", "satellite", "laplace_satellite"}  # two of them late


@pytest.mark.parametrize(
    ("value", "verdict"), [(3.0, ""), (3.1, "missed"), (float("inf"), "missed")]
)
def test_a_line_has_all_numbers_and_a_verdict(value, verdict):
    text = stored.line(Case("c", 3, int, before=9), value, {"c": {"value": 2.5}})
    assert [float(x) for x in text.split()[1:5]] == [
        value if value > 1e9 else round(value, 2),
        2.5,
        3,
        9,
    ]
    assert text.endswith(verdict or "by hand")


def test_modules_with_cases_of_no_arguments_are_in_the_table():
    assert has_cases(SimpleNamespace(cases=lambda: [], main=print))
    assert has_cases(SimpleNamespace(cases=lambda n=3: []))
    assert not has_cases(SimpleNamespace(cases=lambda problem: []))
    assert not has_cases(SimpleNamespace(main=print))


def test_exponents_are_those_of_the_largest_sizes():
    points = {str(n): {"seconds": 1 + n**2 * 1e6, "bytes": n} for n in (1, 10, 100, 1000)}
    found = curve_of({"curve": {**points, "10000": {"failed": "killed"}}}, "curve")
    assert max(found) == 1000
    assert exponent(found, "seconds") == pytest.approx(2, abs=1e-3)
    assert exponent(found, "bytes") == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(("wrap", "expected"), [(lambda value: value, 13), (float, 67)])
def test_calls_of_psi_behind_an_average_effect(wrap, expected):
    """The page has these counts, of a psi that is traced and of one that is not."""
    pytest.importorskip("statsmodels")
    from benchmarks.marginal_effect import Problem

    problem, calls = Problem(100_000, 20), []

    def effect(params):
        calls.append(1)
        return wrap(problem.effect(params))

    idm.infer(problem.model, effect)
    assert len(calls) == expected


def test_stored_results_are_complete():
    rows = stored.load()
    assert all({"value", "aim", "unit", "before", "versions"} <= set(row) for row in rows.values())
    curves = json.loads((stored.PATH.parent / "scaling.json").read_text())
    assert set(curves) <= set(SIZES)
