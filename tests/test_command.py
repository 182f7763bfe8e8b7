"""The command `implicit-delta`: its numbers are those of statsmodels, and its refusals one line."""

import html
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from decimal import Decimal
from pathlib import Path

import numpy as np
import pages
import pytest

pd = pytest.importorskip("pandas")
sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")

import implicit_delta as idm
from implicit_delta import __main__ as module
from implicit_delta.command.main import main
from implicit_delta.command.parser import EXAMPLES
from implicit_delta.core.findings import Finding
from implicit_delta.estimate.report.advice import WORDS, Words, for_user

N = 200


def made():
    rng = np.random.default_rng(0)
    x, site = rng.normal(size=N), rng.choice(list("abc"), N)
    dose = rng.integers(0, 4, N)
    p = 1 / (1 + np.exp(-(0.5 * x + 0.4 * (site == "b"))))
    better = (rng.random(N) < p).astype(int)
    pain = x + rng.logistic(size=N)
    return pd.DataFrame(
        {
            "y": better,
            "x": x,
            "site": site,
            "dose": dose,
            "village": rng.integers(0, 25, N),
            "year": rng.integers(2001, 2009, N),
            "better": np.where(better, "yes", "no"),
            "flag": better == 1,
            "onetwo": better + 1,
            "visits": rng.poisson(np.exp(0.3 + 0.3 * x)),
            "crowd": rng.negative_binomial(2, 2 / (2 + np.exp(1 + 0.3 * x))),
            "cost": rng.gamma(2, np.exp(0.5 + 0.2 * x)),
            "years": rng.uniform(0.5, 2, N),
            "times": rng.integers(1, 4, N),
            "survey": rng.uniform(0.5, 3, N),
            "pain": pd.cut(pain, [-99, -1, 1, 99], labels=["low", "mid", "high"]).astype(str),
            "my column": rng.normal(size=N),
            "a.b": rng.normal(size=N),
            "class": rng.normal(size=N),
            "still": 1,
            "mixed": ["1.5"] * (N - 1) + ["n.d."],
            "empty": np.nan,
            "split": better * 2.0 - 1 + 0.1 * rng.random(N),
            "below": -rng.random(N),
            "twice": 2 * x,
            "day": pd.date_range("2024-01-01", periods=N).astype(str),
        }
    )


@pytest.fixture(scope="module")
def table():
    return made()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    """A folder with the table in several dialects, and with files that are none."""
    place = tmp_path_factory.mktemp("data")
    table.to_csv(place / "data.csv", index=False)
    table.to_csv(place / "data.csv.gz", index=False)
    table.to_csv(place / "data.tsv", index=False, sep="\t")
    table.to_csv(place / "semicolon.csv", index=False, sep=";", decimal=",")
    table.to_csv(place / "utf16.csv", index=False, encoding="utf-16")
    table.assign(x=table.x.where(table.index > 4)).to_csv(place / "gaps.csv", index=False)
    table.rename(columns={"x": "größe"}).to_csv(place / "latin.csv", index=False, encoding="latin1")
    (place / "nothing.csv").write_text("")
    (place / "blank.csv").write_text("\n\n")
    (place / "header.csv").write_text("y,x\n")
    (place / "ragged.csv").write_text("y,x\n1,2\n1,2,3,4\n")
    (place / "longer.csv").write_text("y,x\n1,2,3\n0,2,3\n")
    (place / "twice.csv").write_text("y,x,x\n1,2,3\n0,1,1\n1,0,2\n2,5,1\n")
    (place / "blanks.csv").write_text("y x\n1 2\n0 1\n1 0\n2 5\n")
    (place / "headless.csv").write_text("1,2\n0,1\n1,0\n2,5\n")
    (place / "infinite.csv").write_text("y,x\n1,inf\n0,1\n1,0\n2,5\n")
    (place / "short.csv").write_text("y,x\n1,3\n0,1\n")
    (place / "binary.csv").write_bytes(bytes(range(256)) * 20)
    (place / "broken.parquet").write_bytes(b"PAR1 and then nothing of the kind")
    (place / "broken.csv.gz").write_bytes((place / "data.csv.gz").read_bytes()[:500])
    (place / "sheet.xlsx").write_bytes(b"PK\x03\x04 no archive")
    (place / "folder.csv").mkdir()
    return place


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run the command in that folder: its code, its output, its errors."""
    monkeypatch.chdir(folder)

    def call(*arguments):
        capsys.readouterr()
        code = main([str(word) for word in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def fit(run, formula, *arguments, data="data.csv"):
    code, out, err = run("fit", data, formula, "--json", *arguments)
    assert code == 0, err
    return json.loads(out)


def column(content, name, k=0):
    return np.array([row[name] for row in content["answers"][k]["rows"]], dtype=float)


class Scaled:
    """The sandwich of survey weights has n / (n - 1), as in R's survey."""

    def __init__(self, results):
        self.params, self.bse = results.params, results.bse * np.sqrt(N / (N - 1))


# Formula, options, and the same fit in statsmodels.
GLM = sm.families
FITS = [
    ("cost ~ x + C(site)", "", lambda f, d: smf.ols(f, d).fit()),
    ("cost ~ x", "--family linear", lambda f, d: smf.ols(f, d).fit()),
    ("y ~ x + C(site)", "--family logit", lambda f, d: smf.logit(f, d).fit(disp=0)),
    ("flag ~ x", "--family Logistic", lambda _, d: smf.logit("y ~ x", d).fit(disp=0)),
    ("y ~ x", "--family probit", lambda f, d: smf.probit(f, d).fit(disp=0)),
    ("visits ~ x", "--family poisson", lambda f, d: smf.poisson(f, d).fit(disp=0)),
    (
        "visits ~ x", "--family poisson --exposure years",
        lambda f, d: smf.poisson(f, d, exposure=d.years).fit(disp=0),
    ),
    (
        "y ~ x", "--family logit --offset years",
        lambda f, d: smf.glm(f, d, family=GLM.Binomial(), offset=d.years).fit(),
    ),
    (
        "crowd ~ x", "--family negative-binomial",
        lambda f, d: smf.negativebinomial(f, d).fit(disp=0, maxiter=2000),
    ),
    (
        "cost ~ x", "--family gamma --link log",
        lambda f, d: smf.glm(f, d, family=GLM.Gamma(GLM.links.Log())).fit(),
    ),
    ("cost ~ x", "--family gaussian", lambda f, d: smf.glm(f, d).fit()),
    ("y ~ x", "--family binomial", lambda f, d: smf.glm(f, d, family=GLM.Binomial()).fit()),
    (
        "visits + times ~ x", "--family binomial",
        lambda f, d: smf.glm(f, d, family=GLM.Binomial()).fit(),
    ),
    (
        "y ~ x", "--family logit --link cloglog",
        lambda f, d: smf.glm(f, d, family=GLM.Binomial(GLM.links.CLogLog())).fit(),
    ),
    (
        "visits ~ x", "--family poisson --weights times --weight-kind frequency",
        lambda f, d: smf.glm(f, d, family=GLM.Poisson(), freq_weights=d.times).fit(),
    ),
    (
        "cost ~ x", "--weights survey --weight-kind precision",
        lambda f, d: smf.wls(f, d, weights=d.survey).fit(),
    ),
    (
        "cost ~ x", "--weights times --weight-kind frequency",
        lambda f, d: smf.ols(f, d.loc[d.index.repeat(d.times)]).fit(),
    ),
    (
        "cost ~ x", "--weights survey --weight-kind sampling",
        lambda f, d: Scaled(smf.wls(f, d, weights=d.survey).fit(cov_type="HC0")),
    ),
    ("cost ~ x", "--robust", lambda f, d: smf.ols(f, d).fit(cov_type="HC0")),
    ("cost ~ x", "--robust HC3", lambda f, d: smf.ols(f, d).fit(cov_type="HC3")),
    (
        "y ~ x", "--family logit --clusters village",
        lambda f, d: smf.logit(f, d).fit(
            disp=0, cov_type="cluster",
            cov_kwds={"groups": d.village, "use_correction": False},
        ),
    ),
    (
        "cost ~ x", "--robust HAC(4)",
        lambda f, d: smf.ols(f, d).fit(cov_type="HAC", cov_kwds={"maxlags": 4}),
    ),
    (
        "cost ~ bs(x, df=4) + np.log(years) + I(dose**2) + Q('my column') + dose:C(site, Sum)",
        "",
        lambda f, d: smf.ols(f, d).fit(),
    ),
    (
        "log(cost) ~ (x + dose)**2 - 1", "",
        lambda f, d: smf.ols(f.replace("log", "np.log"), d).fit(),
    ),
    (
        "cost ~ I(village**14 / 1e18) + I(year * year * year * year * year * year / 1e18) + x", "",
        lambda f, d: smf.ols(f, d.astype({"village": float, "year": float})).fit(),
    ),
    ("cost ~ np.where(x > 0, 1, 0) + I((dose >= 2) * 1)", "", lambda f, d: smf.ols(f, d).fit()),
]  # fmt: skip


@pytest.mark.parametrize("case", FITS, ids=lambda case: f"{case[0]} {case[1]}")
def test_numbers_are_those_of_statsmodels(run, table, case):
    formula, options, fitted = case
    content = fit(run, formula, *options.split())
    theirs = fitted(formula, table)
    loose = "negative" in options  # stopped by a tolerance
    np.testing.assert_allclose(
        column(content, "estimate"), theirs.params, rtol=1e-3 if loose else 1e-6, atol=1e-9
    )
    np.testing.assert_allclose(
        column(content, "std_error"), theirs.bse, rtol=1e-2 if loose else 1e-5
    )


def test_classes_and_levels_keep_their_names(run, table):
    content = fit(run, "site ~ x", "--family", "mnlogit")
    assert [row["term"] for row in content["answers"][0]["rows"]] == [
        "b:Intercept", "b:x", "c:Intercept", "c:x",
    ]  # fmt: skip
    codes = table.assign(site=pd.Categorical(table.site).codes)
    theirs = smf.mnlogit("site ~ x", codes).fit(disp=0)
    np.testing.assert_allclose(
        column(content, "std_error"), np.ravel(theirs.bse, order="F"), rtol=1e-6
    )
    content = fit(run, "pain ~ x", "--family", "ordered", "--levels", "low,mid,high")
    order = pd.Categorical(table.pain, ["low", "mid", "high"], ordered=True)
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    theirs = OrderedModel(pd.Series(order), table[["x"]], distr="logit").fit(disp=0, method="bfgs")
    np.testing.assert_allclose(column(content, "estimate"), theirs.params, rtol=1e-3)
    assert content["answers"][0]["rows"][1]["term"] == "low/mid"


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("data.csv.gz", ""),
        ("data.tsv", ""),
        ("utf16.csv", ""),
        ("semicolon.csv", "--delimiter ; --decimal ,"),
        ("-", ""),
    ],
)
def test_dialects_of_files_are_read_alike(run, folder, data, options, monkeypatch):
    content = (folder / "data.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    plain = fit(run, "cost ~ x + site")
    other = fit(run, "cost ~ x + site", *options.split(), data=data)
    np.testing.assert_allclose(column(other, "estimate"), column(plain, "estimate"), rtol=1e-12)


def test_an_encoding_is_given(run):
    content = fit(run, "cost ~ größe", "--encoding", "latin1", data="latin.csv")
    assert content["answers"][0]["rows"][1]["term"] == "größe"


def test_text_is_coded_on_request(run, table):
    ours = fit(run, "better ~ x", "--family", "logit", "--success", "yes")
    np.testing.assert_allclose(
        column(ours, "estimate"), smf.logit("y ~ x", table).fit(disp=0).params, rtol=1e-8
    )
    other = fit(run, "onetwo ~ x", "--family", "logit", "--success", "2")
    np.testing.assert_allclose(column(other, "estimate"), column(ours, "estimate"), rtol=1e-12)


def test_missing_rows_are_counted(run, table):
    code, out, err = run("fit", "gaps.csv", "cost ~ x", "--clusters", "village")
    assert code == 0
    assert "note: dropped 5 of 200 rows with missing values (x: 5)" in err
    assert "note" not in out
    content = fit(run, "cost ~ x", data="gaps.csv")
    assert (content["data"]["rows_read"], content["data"]["rows_used"]) == (200, 195)
    theirs = smf.ols("cost ~ x", table[5:]).fit()
    np.testing.assert_allclose(column(content, "std_error"), theirs.bse, rtol=1e-8)


def test_too_many_predictions_are_refused_before_they_fill_the_memory(run, tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "long.csv"
    pd.DataFrame(rng.normal(size=(5000, 2)), columns=["y", "x"]).to_csv(path, index=False)
    for ask in (
        "predictions",
        "average_prediction(None, 'x')",
        "average_slope('x', by=['y', 'x'])",
    ):
        check_refusal(*run("fit", path, "y ~ x", "--ask", ask), "at most 2000")


def test_names_cannot_steer_a_terminal(run, tmp_path):
    path = tmp_path / "steer.csv"
    path.write_text("y,\x1b[2Jx\n1,2\n2,1\n4,4\n")
    code, out, err = run("fit", path, "y ~ z")
    check_refusal(code, out, err, "?[2Jx")


def test_rows_are_counted_from_one(run):
    content = fit(run, "cost ~ x", "--ask", "predictions", data="gaps.csv")
    assert [row["term"] for row in content["answers"][0]["rows"]][:2] == ["6", "7"]


def test_repeated_rows_count_as_observations(run, table):
    content = fit(run, "cost ~ x", "--weights", "times", "--weight-kind", "frequency")
    assert content["answers"][0]["rows"][0]["df"] == table.times.sum() - 2


def test_clusters_follow_the_rows_that_are_left(run, table):
    ours = fit(run, "cost ~ x", "--clusters", "village", data="gaps.csv")
    kept = table[5:]
    theirs = smf.ols("cost ~ x", kept).fit(
        cov_type="cluster", cov_kwds={"groups": kept.village, "use_correction": False}
    )
    np.testing.assert_allclose(column(ours, "std_error"), theirs.bse, rtol=1e-8)


def test_two_ways_of_clusters(run, table):
    ours = fit(run, "cost ~ x", "--clusters", "village", "year")
    model = idm.from_statsmodels(smf.ols("cost ~ x", table).fit())
    theirs = idm.infer(model, idm.parameters, clusters=(table.village, table.year))
    np.testing.assert_allclose(column(ours, "std_error"), theirs.standard_error, rtol=1e-10)


LOGIT = ("y ~ x + C(site)", "--family", "logit")
ASKS = [
    ("x", lambda p: p["x"]),
    ("C(site)[T.b]", lambda p: p["C(site)[T.b]"]),
    ("contrast('x - C(site)[T.b]')", lambda p: p["x"] - p["C(site)[T.b]"]),
    ('contrast("2 * x + 1")', lambda p: 2 * p["x"] + 1),
    ("parameters", idm.parameters),
    ("parameters()", idm.parameters),
]


@pytest.mark.parametrize(("ask", "psi"), ASKS, ids=[ask for ask, _ in ASKS])
@pytest.mark.parametrize("options", [(), ("--clusters", "village"), ("--robust", "HC3")])
def test_coefficients_and_contrasts(run, table, ask, psi, options):
    content = fit(run, *LOGIT, "--ask", ask, *options)
    model = idm.from_statsmodels(smf.logit(LOGIT[0], table).fit(disp=0))
    kinds = {"--clusters": {"clusters": table.village}, "--robust": {"robust": "HC3"}}
    theirs = idm.infer(model, psi, **(kinds[options[0]] if options else {}))
    np.testing.assert_allclose(column(content, "estimate"), theirs.value, rtol=1e-9)
    np.testing.assert_allclose(column(content, "std_error"), theirs.standard_error, rtol=1e-8)


def questions(table):
    return [
        ("average_comparison('x')", idm.average_comparison("x")),
        ("average_comparison('x', values=(-1, 1), how='ratio')",
         idm.average_comparison("x", values=(-1, 1), how="ratio")),
        ("average_comparison('site', values=('a', 'b'))",
         idm.average_comparison("site", values=("a", "b"))),
        ("average_slope('x')", idm.average_slope("x")),
        ("average_slope('x', by='site')", idm.average_slope("x", by="site")),
        ("average_prediction", idm.average_prediction()),
        ("average_prediction(by=['site'])", idm.average_prediction(by=["site"])),
        ("average_prediction(population=True)", idm.average_prediction(population=True)),
    ]  # fmt: skip


@pytest.mark.parametrize("k", range(8))
def test_questions_are_those_of_the_library(run, table, k):
    ask, question = questions(table)[k]
    content = fit(run, *LOGIT, "--ask", ask, "--clusters", "village")
    model = idm.from_statsmodels(smf.logit(LOGIT[0], table).fit(disp=0))
    theirs = idm.infer(model, question, clusters=table.village)
    np.testing.assert_allclose(column(content, "estimate"), theirs.value, rtol=1e-8)
    np.testing.assert_allclose(column(content, "std_error"), theirs.standard_error, rtol=1e-7)
    assert [row["term"] for row in content["answers"][0]["rows"]] == list(theirs.names)


def test_predictions_on_a_grid(run, table):
    content = fit(run, *LOGIT, "--ask", "predictions(datagrid(x=[-1, 1], site=['a', 'b']))")
    results = smf.logit(LOGIT[0], table).fit(disp=0)
    grid = pd.DataFrame({"x": [-1, -1, 1, 1], "site": ["a", "b", "a", "b"]})
    np.testing.assert_allclose(
        np.sort(column(content, "estimate")), np.sort(results.predict(grid)), rtol=1e-8
    )


def test_level_df_and_seed(run, table):
    narrow = fit(run, "cost ~ x", "--level", "0.5", "--df", "inf")["answers"][0]["rows"][1]
    assert narrow["df"] is None
    half = (narrow["conf_high"] - narrow["conf_low"]) / 2 / narrow["std_error"]
    assert half == pytest.approx(0.6744897501960817)
    drawn = ("cost ~ x", "--method", "Bootstrap(50)", "--ask", "x")
    first, same = (fit(run, *drawn, "--seed", "3") for _ in range(2))
    other = fit(run, *drawn, "--seed", "4")
    assert column(first, "std_error") == column(same, "std_error")
    assert column(first, "std_error") != column(other, "std_error")
    assert "Bootstrap" in first["answers"][0]["method"]


KEYS = {
    "": [
        "schema", "command", "versions", "data", "model", "settings", "answers", "notes",
        "warnings",
    ],
    "data": ["file", "sha256", "rows_read", "rows_used"],
    "settings": ["level", "method", "seed", "robust", "df"],
}  # fmt: skip
ROW = [
    "term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high", "df", "null",
]  # fmt: skip


def test_json_is_complete_strict_and_the_same_twice(run):
    arguments = ("fit", "data.csv", *LOGIT, "--ask", "x", "--ask", "parameters", "--output", "json")
    _, out, _ = run(*arguments)
    assert run(*arguments)[1] == out

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    content = json.loads(out, parse_constant=refuse)
    assert list(content) == KEYS[""]
    assert list(content["data"]) == KEYS["data"]
    assert list(content["settings"]) == KEYS["settings"]
    assert content["schema"] == "implicit-delta/fit/1"
    assert content["command"] == ["implicit-delta", *arguments]
    assert content["versions"]["implicit-delta"] == idm.__version__
    assert [answer["ask"] for answer in content["answers"]] == ["x", "parameters"]
    for answer in content["answers"]:
        assert [list(row) for row in answer["rows"]] == [ROW] * len(answer["rows"])
        assert np.shape(answer["covariance"]) == (len(answer["rows"]),) * 2
        assert all(row["df"] is None for row in answer["rows"])  # infinite
    assert content["model"]["coefficients"] == ["Intercept", "C(site)[T.b]", "C(site)[T.c]", "x"]


def test_warnings_are_lines_and_in_the_json(run):
    arguments = ("fit", "data.csv", "cost ~ x", "--weights", "survey", "--weight-kind", "frequency")
    code, out, err = run(*arguments, "--json", "--quiet")
    assert code == 0
    lines = err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("warning: freq_weights counts repetitions")
    (warned,) = json.loads(out)["warnings"]
    assert f"warning: {warned['message']}" == lines[0]


def test_files_are_written_and_numbered(run, tmp_path, table):
    pytest.importorskip("matplotlib")
    code, _, err = run(
        "fit", "data.csv", *LOGIT, "--ask", "x", "--ask", "parameters",
        "--csv", tmp_path / "out.csv",
        "--plot", tmp_path / "a.png", "--save", tmp_path / "a.npz", "--report", tmp_path / "a.html",
    )  # fmt: skip
    assert code == 0, err
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "a-1.html", "a-1.npz", "a-1.png", "a-2.html", "a-2.npz", "a-2.png", "out.csv",
    ]  # fmt: skip
    written = pd.read_csv(tmp_path / "out.csv")
    theirs = smf.logit(LOGIT[0], table).fit(disp=0)
    assert list(written.ask) == ["x"] + ["parameters"] * 4
    np.testing.assert_allclose(written.std_error[1:], theirs.bse, rtol=1e-8)
    loaded = idm.Estimate.load(tmp_path / "a-2.npz")
    np.testing.assert_allclose(loaded.standard_error, theirs.bse, rtol=1e-8)


@pytest.mark.parametrize(
    ("ask", "options", "place"),
    [
        ("average_comparison('x')", (), 0.0),
        ("Intercept", (), 0.0),
        ("contrast('100 * Intercept')", (), 0.0),
        ("average_comparison('x', how='ratio')", (), 1.0),
        ("x", ("--transform", "exp"), 1.0),
        ("x", ("--null", "-7"), -7.0),
        ("average_prediction", ("--null", "0.5"), 0.5),
        ("average_prediction", (), None),
    ],
)
def test_a_picture_marks_the_value_that_is_tested(run, tmp_path, monkeypatch, ask, options, place):
    """However far away it is; a prediction is not tested against zero."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    marked = []
    monkeypatch.setattr(
        figure, "savefig",
        lambda self, path, **_: marked.extend(
            x for ax in self.axes for line in ax.lines for x in {*np.ravel(line.get_xdata())}
            if len(set(np.ravel(line.get_xdata()))) == 1 and len(line.get_xdata()) > 1
            and ax.get_xlim()[0] <= x <= ax.get_xlim()[1]
        ),
    )  # fmt: skip
    code, _, err = run(
        "fit", "data.csv", "cost ~ x", "--ask", ask, *options, "--plot", tmp_path / "a.png"
    )
    assert code == 0, err
    assert marked == ([] if place is None else [place])


OK = ("data.csv", "cost ~ x")
# Arguments, and words of the one line.
REFUSED = {
    "no file": (("missing.csv", "y ~ x"), "missing.csv; in that folder there is binary.csv"),
    "no folder": (("nowhere/data.csv", "y ~ x"), "there is no folder nowhere"),
    "a web address": (("https://example.org/data.csv", "y ~ x"), "There is no file"),
    "a folder": (("folder.csv", "y ~ x"), "is a folder"),
    "empty": (("nothing.csv", "y ~ x"), "is empty"),
    "blank": (("blank.csv", "y ~ x"), "is empty"),
    "only a header": (("header.csv", "y ~ x"), "no rows"),
    "ragged": (("ragged.csv", "y ~ x"), "cannot be read as CSV"),
    "longer rows": (("longer.csv", "y ~ x"), "more fields in its rows than in its header"),
    "binary": (("binary.csv", "y ~ x"), "is a binary file"),
    "a column twice": (("twice.csv", "y ~ x"), "several columns named x"),
    "blanks between columns": (("blanks.csv", "y ~ x"), "has one column: is --delimiter right?"),
    "no header": (("headless.csv", "y ~ x"), "is its first line a header?"),
    "infinite": (("infinite.csv", "y ~ x"), "'x' has values that are infinite"),
    "two rows": (("short.csv", "y ~ x"), "2 coefficients of 2 rows"),
    "nothing to explain with": (("data.csv", "y ~ 0"), "no columns"),
    "two outcomes": (("data.csv", "y + dose ~ x"), "one outcome"),
    "a comparison as outcome": (
        ("data.csv", "I(x > 0) ~ dose", "--family", "binomial"), "is not a number"),
    "no trials": (("data.csv", "visits + dose ~ x", "--family", "binomial"), "no trials"),
    "negative trials": (("data.csv", "below + dose ~ x", "--family", "binomial"), "not negative"),
    "text among counts": (("data.csv", "y + site ~ x", "--family", "binomial"), "one outcome"),
    "broken gzip": (("broken.csv.gz", "y ~ x"), "cannot be read as CSV"),
    "a sheet": (("sheet.xlsx", "y ~ x"), "Save the sheet as CSV"),
    "semicolons": (("semicolon.csv", "cost ~ x"), "separated by ';'. Give --delimiter ';'"),
    "tabs": (("data.tsv", "cost ~ x", "--delimiter", ","), "Give --delimiter tab"),
    "wrong encoding": (("latin.csv", "cost ~ x"), "--encoding latin-1"),
    "no such encoding": ((*OK, "--encoding", "nonsense"), "--encoding latin-1"),
    "long delimiter": ((*OK, "--delimiter", "::"), "argument --delimiter: one character"),
    "no column": (("data.csv", "y ~ vilage"), "no column 'vilage': did you mean village?"),
    "another case": (("data.csv", "y ~ X"), "did you mean x?"),
    "no outcome column": (("data.csv", "z ~ x"), "There is no column 'z'"),
    "no cluster column": ((*OK, "--clusters", "vilage"), "did you mean village?"),
    "three clusters": ((*OK, "--clusters", "village", "year", "site"), "one column or two"),
    "no weights column": ((*OK, "--weights", "w", "--weight-kind", "frequency"), "no column 'w'"),
    "weights without a kind": ((*OK, "--weights", "times"), "--weight-kind go together"),
    "kind without weights": ((*OK, "--weight-kind", "sampling"), "go together"),
    "text as weights": ((*OK, "--weights", "site", "--weight-kind", "sampling"), "not numeric"),
    "negative weights": ((*OK, "--weights", "below", "--weight-kind", "sampling"), "negative"),
    "weights of classes": (
        ("data.csv", "site ~ x", "--family", "mnlogit", "--weights", "times", "--weight-kind",
         "frequency"), "takes neither --weights nor --link"),
    "offset of ols": ((*OK, "--offset", "years"), "takes no --offset. Use --family gaussian"),
    "exposure of a logit": (
        ("data.csv", "y ~ x", "--family", "logit", "--exposure", "years"), "takes no --exposure"),
    "negative exposure": (
        ("data.csv", "visits ~ x", "--family", "poisson", "--exposure", "below"), "or zero"),
    "exposure without a log": (
        ("data.csv", "cost ~ x", "--family", "gaussian", "--exposure", "years"), "exposure"),
    "no family": ((*OK, "--family", "loogit"), "did you mean logit"),
    "nothing like a family": ((*OK, "--family", "zebra"), "there is ols, logit"),
    "no link": ((*OK, "--link", "lg"), "no link 'lg'"),
    "no ~": (("data.csv", "y"), "has no outcome: write it before a '~'"),
    "two ~": (("data.csv", "y ~ x ~ site"), "~ can only be used once"),
    "no outcome": (("data.csv", "~ x"), "has no outcome"),
    "no columns": (("data.csv", "y ~"), "the expression ended"),
    "an empty formula": (("data.csv", ""), "has no outcome"),
    "breaks off": (("data.csv", "y ~ x +"), "the expression ended"),
    "open bracket": (("data.csv", "y ~ (x + dose"), "does not parse"),
    "closed bracket": (("data.csv", "y ~ x)"), "extra ')'"),
    "two names": (("data.csv", "y ~ x dose"), "'x dose' in the formula does not parse"),
    "a blank in a name": (("data.csv", "y ~ my column"), 'Q("my column")'),
    "a dot in a name": (("data.csv", "y ~ a.b"), 'Write Q("a.b")'),
    "a keyword": (("data.csv", "y ~ class"), 'Q("class")'),
    "a dot for all": (("data.csv", "y ~ ."), "a dot does not stand for all"),
    "a bar": (("data.csv", "y ~ x + (1 | site)"), "'1 | site' is not a column"),
    "a comparison": (("data.csv", "y ~ x > 3"), "comparisons go into I(...)"),
    "an unknown column in Q": (("data.csv", "y ~ Q('my colum')"), "did you mean my column?"),
    "no function": (("data.csv", "y ~ ns(x)"), "not a function for formulas"),
    "a high power": (("data.csv", "y ~ (x + dose)**99"), "takes interactions, up to 9"),
    "a computed power": (("data.csv", "y ~ (x + dose)**(1+1)"), "takes interactions, up to 9"),
    "a power of a column": (("data.csv", "y ~ x**dose"), "takes interactions, up to 9"),
    "an operator first": (("data.csv", "y ~ | x"), "does not parse"),
    "a sign alone": (("data.csv", "y ~ ="), "does not parse"),
    "a function alone": (("data.csv", "y ~ x + bs"), "There is no column 'bs'"),
    "an exact fit": (("data.csv", "y ~ y"), "fits these data exactly"),
    "an intercept as outcome": (("data.csv", "1 + y ~ x"), "has no outcome"),
    "a number": (("data.csv", "y ~ x + 3"), "numbers besides '0' and '1'"),
    "text for numbers": (("data.csv", "y ~ mixed"), "text among its numbers, 'n.d.' in row 200"),
    "no complete row": (("data.csv", "y ~ empty"), "No row is complete"),
    "a root of negatives": (("data.csv", "cost ~ np.sqrt(below)"), "root of a negative"),
    "a logarithm of zero": (("data.csv", "cost ~ np.log(dose)"), "logarithm of zero"),
    "too many categories": (("data.csv", "cost ~ C(day) + x"), "201 coefficients of 200 rows"),
    "yes and no": (("data.csv", "better ~ x", "--family", "logit"), "--success"),
    "one and two": (("data.csv", "onetwo ~ x", "--family", "logit"), "0 and 1, but holds 2"),
    "no such success": (
        ("data.csv", "better ~ x", "--family", "logit", "--success", "Yes"), "is never 'Yes'"),
    "success of a count": (
        ("data.csv", "visits ~ x", "--family", "poisson", "--success", "1"), "two kinds"),
    "text as a number": (("data.csv", "better ~ x"), "not numeric: it holds"),
    "mixed outcome": (("data.csv", "mixed ~ x"), "correct the file"),
    "a constant outcome": (("data.csv", "still ~ x"), "the same in every row"),
    "a constant logit": (("data.csv", "still ~ x", "--family", "logit"), "the same in every row"),
    "negative counts": (("data.csv", "below ~ x", "--family", "poisson"), "not negative"),
    "negative gamma": (("data.csv", "below ~ x", "--family", "gamma"), "must be positive"),
    "shares beyond one": (("data.csv", "cost ~ x", "--family", "binomial"), "from 0 to 1"),
    "text in order": (("data.csv", "pain ~ x", "--family", "ordered"), "--levels"),
    "a level too few": (
        ("data.csv", "pain ~ x", "--family", "ordered", "--levels", "low,mid"), "high is not in"),
    "a level too many": (
        ("data.csv", "pain ~ x", "--family", "ordered", "--levels", "low,mid,high,top"),
        "top never occurs"),
    "separated": (("data.csv", "y ~ split", "--family", "logit"), "separates the outcomes"),
    "separated, GLM": (("data.csv", "y ~ split", "--family", "binomial"), "separates the outcomes"),
    "collinear": (("data.csv", "y ~ x + twice", "--family", "logit"), ""),
    "collinear, linear": (("data.csv", "cost ~ x + twice"), "flat"),
    "one cluster": ((*OK, "--clusters", "still"), "cluster"),
    "level": ((*OK, "--level", "95"), "argument --level: a number between 0 and 1"),
    "level nan": ((*OK, "--level", "nan"), "argument --level: a number between 0 and 1"),
    "level text": ((*OK, "--level", "high"), "invalid float value"),
    "df": ((*OK, "--df", "-3"), "argument --df: a number 1 or more"),
    "robust": ((*OK, "--robust", "HC9"), "--robust is one of HC0"),
    "hac": ((*OK, "--robust", "HAC(-1)"), "--robust HAC(-1)"),
    "method": ((*OK, "--method", "Magic"), "is not known here"),
    "a setting of the method": ((*OK, "--method", "Bootstrap(nonsense=1)"), "nonsense"),
    "no option": ((*OK, "--colour"), "unrecognized arguments: --colour (see"),
    "no formula": (("data.csv",), "arguments are required: formula"),
    "columns first": (("--clusters", "village", *OK), "the file and the formula come first"),
    "a picture that is none": ((*OK, "--plot", "page.txt"), "must end in .png"),
    "a page that is none": ((*OK, "--report", "page.txt"), "must end in .html"),
    "no folder for the page": ((*OK, "--report", "no/page.html"), "no folder no"),
    "a folder for the page": ((*OK, "--csv", "folder.csv"), "is a folder"),
    "overwriting": ((*OK, "--csv", "data.csv"), "would overwrite the data"),
    "overwriting twice": ((*OK, "--csv", "o.png", "--plot", "o.png"), "would overwrite --csv"),
    "broken Parquet": (("broken.parquet", "y ~ x"), "arquet"),
}  # fmt: skip


def check_refusal(code, out, err, words=""):
    assert code == 2, (out, err)
    assert out == ""
    *before, last = err.splitlines()
    assert all(line.startswith(("note: ", "warning: ")) for line in before)
    assert last.startswith("error: ")
    assert words in last
    assert "Traceback" not in err


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_call_is_one_line_and_exit_code_2(run, name):
    arguments, words = REFUSED[name]
    check_refusal(*run("fit", *arguments), words)


# Right sides that make at least as many columns as the table below has rows.
COUNTED = [
    "x * z * w", "x + z + w + t", "(x + z + w)**2", "(x + z + w)**9", "((x + z + w)**9)**9",
    "x * z * w - x:z", "(x + z + w) * t - 1", "0 + x + z + w + t", "x + z + w + t + 0",
    "-1 + x*z + w", "x / z / w", "(x + z) / w + t", "x / (z + w + t)", "x:z + w + t", "x * z:w + t",
    "g * h", "g:h", "g * x", "g:x + h", "0 + g:h", "g * h - g:h", "C(g, Sum) * h",
    "C(x) + z", "C(x):C(g)", "C(g, Helmert) + x + z", "g / h", "g / x", "0 + g + x:h", "flag * g",
    "flag:g", "I(x > 1):g", "C(np.floor(x)) + z", "np.where(x > 1, g, h) * x", "one * x * z * w",
    "one:g:h", "x:g:h:flag", "Q('a b') + g * flag", "bs(x, df=5)", "bs(x, 4) + z",
    "bs(x, knots=[1, 2], degree=2)", "bs(x, df=4, include_intercept=True) - 1", "cr(x, df=4)",
    "cr(x, df=4, constraints='center') + z", "cc(x, df=4)", "cr(x, knots=[1, 1.5])",
    "cc(x, knots=[0.5, 1, 2])", "te(cr(x, df=3), cr(z, df=3))",
    "te(cr(x, df=3), cr(z, df=3), constraints='center')", "bs(x, df=3):bs(z, df=3)",
    "bs(x, df=4) * g", "scale(bs(x, df=4))", "I(bs(x, df=4))", "x + (z + (w + (t)))", "x*x*x + z*w",
]  # fmt: skip


@pytest.mark.parametrize("formula", COUNTED)
def test_columns_are_counted_as_they_are_made(run, tmp_path, formula):
    patsy = pytest.importorskip("patsy")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"y": rng.normal(size=4), "x": [0.1, 1.0, 2.0, 3.0], "z": [2.0, 1.0, 5.0, 0.0],
         "w": rng.normal(size=4), "t": rng.normal(size=4), "a b": rng.normal(size=4), "one": "1a",
         "g": ["a", "b", "c", "a"], "h": ["u", "v", "u", "v"], "flag": [True, False, False, True]}
    )  # fmt: skip
    table.to_csv(tmp_path / "tiny.csv", index=False)
    columns = patsy.dmatrix(formula, table).shape[1]
    assert columns >= 4
    told = f"makes {columns} coefficients of 4 rows"
    check_refusal(*run("fit", tmp_path / "tiny.csv", f"y ~ {formula}"), told)


def test_designs_are_made_up_to_the_number_of_rows(run):
    fit(run, "cost ~ bs(x, df=150)", "--ask", "Intercept")
    assert "coefficients of" not in run("fit", "data.csv", "cost ~ bs(x, df=198)")[2]
    check_refusal(*run("fit", "data.csv", "cost ~ bs(x, df=199)"), "200 coefficients of 200 rows")


MANY = "+".join(f"I(x + {k})" for k in range(60))
ABSURD = {
    "df": ("cost ~ bs(x, df=99999999)", "makes 100000000 coefficients of 200 rows"),
    "df, by place": ("cost ~ bs(x, 99999999)", "alone makes 99999999"),
    "df of cr": ("cost ~ cr(x, df=99999999)", "alone makes 99999999"),
    "df of cc": ("cost ~ cc(x, df=99999999)", "alone makes 99999999"),
    "df of te": ("cost ~ te(cr(x, df=9000), cr(years, df=9000))", "alone makes 81000000"),
    "df inside": ("cost ~ scale(I(bs(x, df=99999999)))", "alone makes 99999999"),
    "df computed": ("cost ~ bs(x, df=9999*9999)", "df of bs in the formula is a whole number"),
    "df of text": ("cost ~ bs(x, df='4')", "is a whole number"),
    "df of a column": ("cost ~ bs(x, df=dose)", "is a whole number"),
    "df 1e99": ("cost ~ bs(x, df=1e99)", "is a whole number"),
    "df of the outcome": ("bs(x, df=99999999) ~ x", "The outcome makes"),
    "degree": ("cost ~ bs(x, df=250, degree=200)", "at most 19"),
    "degree alone": ("cost ~ bs(x, degree=99999999)", "at most 19"),
    "degree of poly": ("cost ~ poly(x, 99999999)", "not a function for formulas"),
    "days": ("cost ~ day * x", "day alone makes 199, one for each of its values"),
    "labels by labels": ("cost ~ C(day, Poly):C(year):C(village)", "coefficients of 200 rows"),
    "computed labels": ("cost ~ C(np.floor(1e9 * x))", "alone makes 199"),
    "labels of where": ("cost ~ np.where(x > 9, site, day)", "alone makes 199"),
    "thirty factors": ("cost ~ " + "*".join(f"I(x + {k})" for k in range(30)), "multiply out"),
    "powers": (f"cost ~ ({MANY})**9", "multiply out to"),
    "powers of powers": ("cost ~ (" + "+".join(f"I(x + {k})" for k in range(12)) + "**3)**9", ""),
    "sums by sums": (f"cost ~ ({MANY}):(dose + years + {MANY})", "coefficients of 200 rows"),
    "labels of thirty": ("cost ~ " + ":".join(f"C(dose + {k})" for k in range(30)), "makes"),
    "a large power": ("cost ~ I(x**99999999)", "a power that is too large"),
    "a power of NumPy": ("cost ~ np.power(x, 99999999)", "a power that is too large"),
    "a long row": ("cost ~ " + "+".join(["x"] * 4900), "too many operators"),
    "classes": ("day ~ x", "makes 398 coefficients of 200 rows", "--family", "mnlogit"),
    "ordered": (
        "day ~ x", "coefficients of 200 rows", "--family", "ordered", "--levels",
        ",".join(str(day.date()) for day in pd.date_range("2024-01-01", periods=N))),
    "replicates": ("cost ~ x", "at most 1000000", "--method", "Bootstrap(99999999999)"),
    "replicates 1e9": ("cost ~ x", "at most 1000000", "--method", "Bootstrap(1e9)"),
    "draws": ("cost ~ x", "at most 1000000", "--method", "Simulation(99999998)"),
    "a push": ("cost ~ x", "at most 1e+15", "--method", "FiniteDifference(1e300)"),
    "lags": ("cost ~ x", "there are 200 rows", "--robust", "HAC(999999999999999)"),
    "lags 1e300": ("cost ~ x", "at most 1e+15", "--robust", "HAC(1e300)"),
    "a value": ("cost ~ x", "at most 1e+15", "--ask", "average_comparison('x', values=(0, 1e99))"),
    "values": ("cost ~ x", "a pair", "--ask", f"average_comparison('x', values=[{'1,' * 900}])"),
    "a grid": ("cost ~ x", "at most 1e+15", "--ask", "predictions(datagrid(x=1e308))"),
    "a seed": ("cost ~ x", "argument --seed: a number 0 or more", "--seed", "-1"),
    "a long seed": ("cost ~ x", "invalid int value", "--seed", "9" * 5000),
    "df of t": ("cost ~ x", "argument --df: a number 1 or more", "--df", "1e-300"),
    "a long encoding": ("cost ~ x", "is not text in", "--encoding", "9" * 5000),
}  # fmt: skip


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_sizes_are_refused_before_anything_is_made(run, name):
    formula, words, *options = ABSURD[name]
    code, out, err = run("fit", "data.csv", formula, *options)
    check_refusal(code, out, err, words)
    assert len(err.splitlines()[-1]) < 1100


def test_a_table_that_is_too_large_for_one_fit(run, tmp_path):
    labels = np.arange(20_000)
    table = pd.DataFrame({"y": np.sin(labels), "g": labels // 2, "by": [f"u{k}" for k in labels]})
    table.to_csv(tmp_path / "wide.csv", index=False)
    told = "makes 10000 coefficients of 20000 rows, which is too many for one fit: the limits are"
    check_refusal(*run("fit", tmp_path / "wide.csv", "y ~ C(g)"), told)
    ask = ("--ask", "average_prediction(by='by')")
    check_refusal(*run("fit", tmp_path / "wide.csv", "y ~ g", *ask), "20000 answers")


CODE = [
    "__import__('os').system('touch hit')", "open('hit', 'w')", "(open('hit', 'w'))", "x.__class__",
    "I(x.__class__)", "I(__import__('os').system('touch hit'))", "C(open('hit', 'w'))",
    "I(().__class__.__bases__[0].__subclasses__())", "I([open('hit', 'w') for _ in (1, 2)])",
    "I(f'{open(\"hit\", \"w\")}')", "I((lambda: open('hit', 'w'))())", "I(9**9**9**9)",
    "I(10**10000000 * x)", "I('a' * 1000000000)", "I((1,) * 1000000000)", "np.save('hit', x)",
    "np.lib.format.open_memmap('hit', 'w+', shape=(1,))", "np.fromfile('hit')", "eval('open(1)')",
    "exec('1')", "I(eval)", "C(x)(open('hit', 'w'))", "C(x).to_csv('hit')", "x.to_csv('hit')",
    "I(x if open('hit', 'w') else x)", "I((y := x))", "I(x[open('hit', 'w')])",
    "Q(open('hit','w'))", "Q('x' + 'y')", "`x`", "{open('hit', 'w')}", "x; import os",
    "I(x) @ open('hit', 'w')",
    "I(*open('hit', 'w'))", "C(x, levels=open('hit', 'w'))", "I(globals())", "I(x and open('hit'))",
    "optional('os', '')", "from_statsmodels(x)", "I(frame)", "I(asked)", "I(1 << 9999999999)",
    "I(" * 500 + "x" + ")" * 500, "x + " * 5000 + "x", "yield", "await x", "print('hit')",
    "np.log.__self__", "np.where.__globals__", "I(np)", "I(not open('hit', 'w'))",
]  # fmt: skip


@pytest.mark.parametrize("code", CODE, ids=lambda code: code[:40])
@pytest.mark.parametrize("form", ["y ~ {}", "y ~ x + {}", "{} ~ x"])
def test_no_code_in_a_formula_is_run(run, folder, code, form):
    check_refusal(*run("fit", "data.csv", form.format(code)))
    assert not (folder / "hit").exists()


PIECES = [
    "y", "x", "dose", "site", "C(site)", "(", ")", "+", "-", "*", ":", "/", "**", "**2", "**(1+1)",
    "0", "1", "2", "3.5", "~", "I(x**2)", "np.log(years)", "np.log", "bs(x, df=4)", "bs(x, df=x)",
    "bs()", "bs", "C()", "Q('my column')", "Q()", "'a'", ",", "[", "]", "%", "|", "=", "@", "{",
    "a.b", "lambda x: 1", "te(cr(x, df=3), cr(years, df=3))", "C(site, Treatment('b'))", "not x",
    "#c", "`x`", "$", "é", "I(x > 1)", "I()", "bs(*x)", "bs(x, **{'df': 3})", "np.where(x>0, 1)",
]  # fmt: skip


def test_random_formulas_are_fitted_or_refused(run):
    rng = np.random.default_rng(0)
    for _ in range(400):
        start = rng.choice(["y ~ ", "y ~ x + ", "y + dose ~ ", ""])
        formula = start + " ".join(rng.choice(PIECES, rng.integers(1, 7)))
        code, _, err = run("fit", "data.csv", formula, "--quiet")
        assert code in (0, 2), (formula, err)


GRID = f"predictions(datagrid(x=[{'1,' * 50}], dose=[{'1,' * 50}]))"
ASKED_CODE = [
    "__import__('os').system('touch hit')", "average_comparison(open('hit', 'w'))",
    "average_comparison(__import__('os'))", "average_comparison('x').__class__",
    "average_comparison.__globals__", "average_comparison('x', values=[i for i in (0, 1)])",
    "average_comparison(f'{x}')", "average_comparison('x', values=9**9**9)",
    "average_comparison(*'x')", "average_comparison(**{'variable': 'x'})", "open('hit', 'w')",
    "(lambda: 1)()", "average_comparison('x', data=open('hit', 'w'))", "average_comparison(x)",
    "average_comparison('x', values=(1,) * 10**9)", "average_comparison('x' 'y' if 1 else 'z')",
    "average_comparison('x')('y')", "average_comparison('x'); 1", "infer('x')", "from_loglik(1)",
    "datagrid(x=1)", "predictions(datagrid(datagrid(x=1)))", "predictions(datagrid(x=open('hit')))",
    "contrast(open('hit', 'w'))", "contrast('x.__class__')", "contrast('open(1)')",
    GRID,
    "contrast('9**9**9')", "contrast('x', 'y')", "contrast()", "parameters(1)", "averge_slope('x')",
    "average_slope()", "average_slope('x', nonsense=1)", "average_slope('nowhere')", "", "(",
    "((((", "[" * 300, "x" * 5000, "nowhere", "average_comparison('x', values=1j)",
    "average_comparison(b'x')",
    "average_comparison('x', values=" + "9" * 5000 + ")", "average_comparison('x', values=...)",
    "average_prediction(by=3)", "average_prediction(by=['nowhere'])", "average_prediction(by=[[]])",
    "average_comparison('x', how='sum')", "predictions('data.csv')",
]  # fmt: skip


@pytest.mark.parametrize("ask", ASKED_CODE, ids=lambda ask: ask[:40])
def test_no_code_in_a_question_is_run(run, folder, ask):
    check_refusal(*run("fit", "data.csv", *LOGIT, "--ask", ask))
    assert not (folder / "hit").exists()


@pytest.mark.parametrize("text", ["Bootstrap(rng=open('hit', 'w'))", "open('hit','w')", "HAC(4)"])
def test_no_code_in_a_method_is_run(run, folder, text):
    check_refusal(*run("fit", *OK, "--method", text))
    assert not (folder / "hit").exists()


def test_a_column_that_hides_a_function(run, tmp_path, table):
    path = tmp_path / "scale.csv"
    table.rename(columns={"years": "scale", "x": "np"}).to_csv(path, index=False)
    fit(run, "cost ~ scale + np", data=path)
    check_refusal(*run("fit", path, "cost ~ scale(np)"), "hides the function")


def test_a_bug_is_one_line_without_debug(run, monkeypatch):
    def broken(*_):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("implicit_delta.command.reading.read_table", broken)
    code, out, err = run("fit", *OK)
    assert (code, out) == (70, "")
    assert err.startswith("error: this is a bug, please report it")
    assert err.count("\n") == 1
    code, _, err = run("fit", *OK, "--debug")
    assert code == 70
    assert "Traceback" in err


def with_gaps(values):
    return values.where(np.arange(N) > 3)


PARQUET = {
    "as it is": lambda table: table,
    "with an index": lambda table: table.set_index("village"),
    "nullable": lambda table: table.convert_dtypes(),
    "of Arrow": lambda table: table.convert_dtypes(dtype_backend="pyarrow"),
    "categories": lambda table: table.astype({"site": "category", "village": "category"}),
    "decimals": lambda table: table.assign(x=[Decimal(repr(x)) for x in table.x]),
    "gaps": lambda table: table.convert_dtypes().assign(x=with_gaps(table.x)),
    "gaps of decimals": lambda table: table.assign(
        x=with_gaps(pd.Series([Decimal(repr(x)) for x in table.x], dtype=object))
    ),
    "gaps of booleans": lambda table: table.assign(flag=with_gaps(table.flag.astype("boolean"))),
}


@pytest.mark.parametrize("name", PARQUET)
def test_parquet_gives_the_numbers_of_csv(run, folder, table, name):
    pytest.importorskip("pyarrow")
    frame = PARQUET[name](table)
    frame.to_parquet(folder / "data.parquet")
    frame.reset_index().to_csv(folder / "same.csv", index=False)
    how = ("cost ~ x + site + flag", "--clusters", "village", "--ask", "average_comparison('x')")
    found, expected = (fit(run, *how, data=data) for data in ("data.parquet", "same.csv"))
    assert found["data"]["rows_used"] == expected["data"]["rows_used"]
    for key in ("estimate", "std_error"):
        assert found["answers"][0]["rows"][0][key] == pytest.approx(
            expected["answers"][0]["rows"][0][key], rel=1e-9
        )


def test_the_reader_of_parquet_is_named(run, folder, monkeypatch):
    (folder / "data.parquet").write_bytes(b"PAR1")

    def missing(file):
        raise ImportError("no engine")

    monkeypatch.setattr(pd, "read_parquet", missing)
    check_refusal(
        *run("fit", "data.parquet", "cost ~ x"), "`pip install 'implicit-delta[parquet]'`"
    )


def test_check_and_the_old_calls(run, capsys):
    code, out, _ = run("check")
    assert code == 0
    assert f"implicit-delta {idm.__version__}" in out
    assert "Extras" in out
    with pytest.raises(SystemExit) as stop:
        module.main(["check"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == out
    check_refusal(*run(), "name a command: fit, check, demo")
    check_refusal(*run("fitt"), "invalid choice: 'fitt'")


@pytest.mark.parametrize("arguments", [("--help",), ("fit", "--help"), ("--version",)])
def test_help_and_version(run, capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert not stop.value.code
    assert "implicit-delta" in capsys.readouterr().out


def process(*arguments, folder, code="from implicit_delta.command.main import main", hidden=()):
    hide = f"""
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {set(hidden)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{hide}\n{code}\nsys.exit(main())", *arguments],
        cwd=folder, env=os.environ | path, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_as_a_process(folder):
    done = process("fit", *OK, "--ask", "x", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("x, 95% confidence intervals\n")
    assert done.stderr == "note: OLS fitted to 200 rows\n"
    done = process("fit", "data.csv", "y ~ z", folder=folder)
    check_refusal(done.returncode, done.stdout, done.stderr, "There is no column 'z'")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "statsmodels"])
def test_without_a_library_the_line_says_what_to_install(folder, library):
    done = process("fit", *OK, folder=folder, hidden=[library])
    check_refusal(done.returncode, done.stdout, done.stderr, f"implicit-delta[{library}]")
    assert process("check", folder=folder, hidden=[library]).returncode == 0


@pytest.mark.slow
def test_the_command_starts_without_the_libraries_of_models(folder):
    loaded = "print(sorted({'pandas', 'statsmodels', 'matplotlib', 'torch'} & set(sys.modules)))"
    done = process(
        folder=folder, code=f"def main():\n    {loaded}\nimport implicit_delta.command.main"
    )
    assert done.stdout.strip() == "[]"


ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guide" / "command.md"
SESSION = re.compile(r"^```sh\n(implicit-delta .*?)^```\n\n```text\n(.*?)^```$", re.M | re.S)


@pytest.mark.skipif(not PAGE.exists(), reason="the pages of the site are not here")
def test_the_page_shows_what_is_printed(tmp_path, monkeypatch):
    text = PAGE.read_text()
    (data,) = re.findall(r"^```none\n(.*?)^```$", text, re.M | re.S)
    (tmp_path / "flights.csv").write_text(data)
    monkeypatch.chdir(tmp_path)
    sessions = SESSION.findall(text)
    assert len(sessions) == 5
    for typed, shown in sessions:
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
            main(shlex.split(typed.replace("\\\n", " "))[1:])
        assert pages.agree(shown, printed.getvalue()), printed.getvalue()


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="pyproject.toml is not here")
def test_the_script_of_the_package_is_this_command():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    place, _, name = scripts["implicit-delta"].partition(":")
    assert getattr(importlib.import_module(place), name) is main


def test_the_examples_of_the_help_work(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(2)
    trial = made().rename(columns={"better": "improved", "cost": "weight", "x": "age"})
    trial.assign(sex=rng.choice(["f", "m"], N)).to_csv(tmp_path / "trial.csv", index=False)
    monkeypatch.chdir(tmp_path)
    lines = EXAMPLES.replace("\\\n", " ").splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("  implicit-delta ")]
    assert len(commands) == 3
    for command in commands:
        assert main(command) == 0, capsys.readouterr().err


@pytest.mark.parametrize("code", [*WORDS, "of another release"])
@pytest.mark.parametrize("number", [None, 0.25])
def test_findings_speak_of_options(code, number):
    finding = Finding("warn", code, "Own text.", number, remedies=("Use `infer(model, psi)`.",))
    said = for_user(finding)
    own = WORDS.get(code, Words()).what
    assert said.startswith("Own text." if number is None or not own else own.format(x=number))
    for python in ("`", "model, psi", "strict=", "l2=", "profile(", "robust=", "polish(", "{"):
        assert python not in said


REMEDIES = [  # a warning with the option that it advises, and the same call with that option
    (("visits ~ 1", "--family", "poisson"), "--robust", ("--robust", "HC3")),
    (("cost ~ x", "--clusters", "year"), "--robust CR2", ("--robust", "CR2")),
    ((*LOGIT, "--ask", "predictions(datagrid(x=[-4]))"), "--transform logit",
     ("--transform", "logit")),
]  # fmt: skip


@pytest.mark.parametrize("case", REMEDIES, ids=lambda case: case[1])
def test_remedies_are_options_that_work(run, folder, case):
    arguments, words, remedy = case
    rng = np.random.default_rng(0)
    crowd = made().assign(visits=rng.negative_binomial(1, 0.2, N))
    crowd.to_csv(folder / "crowd.csv", index=False)
    code, _, before = run("fit", "crowd.csv", *arguments, "--quiet")
    assert code == 0
    assert words in before
    code, _, after = run("fit", "crowd.csv", *arguments, *remedy, "--quiet")
    assert code == 0
    assert words not in after


def test_a_refusal_by_a_finding_is_in_words_of_the_command(run, tmp_path):
    """One class has a single row beyond all others: its fit has no finite maximum."""
    x = np.r_[np.arange(30.0), 100.0]
    rare = pd.DataFrame({"y": (x > 50).astype(int), "x": x + 0, "g": ["a"] * 30 + ["b"]})
    rare.to_csv(tmp_path / "rare.csv", index=False)
    code, _, err = run("fit", tmp_path / "rare.csv", "y ~ C(g)", "--family", "logit")
    assert code == 2
    assert "strict" not in err
    assert "`" not in err


def test_rows_without_a_group_are_left_out_and_counted(run, table, tmp_path):
    gaps = table.assign(place=table.site.where(np.arange(N) >= 10), x=table.x.where(table.x < 2))
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    path, by = str(tmp_path / "gaps.csv"), "average_comparison('dose', by=['place', 'flag'])"
    code, out, err = run("fit", path, "cost ~ x + dose", "--ask", by, "--ask", "dose", "--json")
    assert code == 0, err
    used = gaps.dropna(subset=["x", "place"])
    content = json.loads(out)
    assert content["data"]["rows_used"] == len(used) < N - 9
    assert f"dropped {N - len(used)} of {N} rows" in err
    assert "place: 10" in err
    theirs = smf.ols("cost ~ x + dose", used).fit()
    assert content["answers"][1]["rows"][0]["std_error"] == pytest.approx(theirs.bse["dose"])
    assert {row["term"].split(",")[0] for row in content["answers"][0]["rows"]} == {
        "place=a", "place=b", "place=c",
    }  # fmt: skip
    wrong = ("--ask", "average_comparison('dose', by='plase')")
    check_refusal(*run("fit", path, "cost ~ x + dose", *wrong), "did you mean place?")


BENT = "predictions(datagrid(x=[-4]))"


def test_a_warning_names_its_question(run):
    arguments = ("fit", "data.csv", *LOGIT, "--ask", "x", "--ask", BENT)
    code, out, err = run(*arguments, "--json", "--quiet")
    assert code == 0
    (line,) = err.splitlines()
    assert line.startswith(f"warning: {BENT}: The value bends")
    (warned,) = json.loads(out)["warnings"]
    assert warned["asks"] == [BENT]
    _, _, err = run("fit", "data.csv", *LOGIT, "--ask", BENT, "--quiet")  # no other question
    assert err.startswith("warning: The value bends")


def test_an_error_names_its_question(run):
    asks = ("--ask", "x", "--ask", "average_comparison('nowhere')")
    check_refusal(*run("fit", "data.csv", *LOGIT, *asks), "error: average_comparison('nowhere'): ")


@pytest.mark.parametrize(
    ("ask", "options", "how"),
    [
        (BENT, ("--transform", "logit"), {"transform": "logit"}),
        (BENT, ("--transform", "log"), {"transform": "log"}),
        ("x", ("--transform", "exp"), {}),
        ("x", ("--null", "0.3"), {}),
    ],
)
def test_null_and_transform(run, table, ask, options, how):
    content = fit(run, *LOGIT, "--ask", ask, *options)
    (row,) = content["answers"][0]["rows"]
    model = idm.from_statsmodels(smf.logit(LOGIT[0], table).fit(disp=0))
    psi = idm.predictions(idm.datagrid(model, x=[-4])) if ask == BENT else idm.parameters
    est = idm.infer(model, psi)
    est = est if ask == BENT else est["x"]
    if how:
        low, high = np.ravel(est.confidence_interval(**how))
        assert [row["conf_low"], row["conf_high"]] == pytest.approx([low, high])
        assert row["null"] == {"log": 1.0, "logit": 0.5}[how["transform"]]
        assert (row["p_value"] < 0.05) == (not low < row["null"] < high)
    else:
        null, shown = (0.3, None) if "--null" in options else (1.0, "exp")
        expected = est.to_dict(null=null, transform=shown)
        assert {key: [entry] for key, entry in row.items() if key != "df"} == {
            key: pytest.approx(entry) if key != "term" else entry
            for key, entry in expected.items()
            if key != "df"
        }
    assert content["settings"][options[0][2:]] == (0.3 if "--null" in options else options[1])


def test_a_ratio_is_symmetric_on_request(run):
    ask = ("--ask", "average_comparison('x', how='ratio')")
    by_default, symmetric = (
        fit(run, *LOGIT, *ask, *options)["answers"][0]["rows"][0]
        for options in ((), ("--transform", "identity"))
    )
    middle = (symmetric["conf_low"] + symmetric["conf_high"]) / 2
    assert middle == pytest.approx(symmetric["estimate"])
    assert by_default["conf_low"] * by_default["conf_high"] == pytest.approx(
        by_default["estimate"] ** 2
    )
    assert by_default["null"] == symmetric["null"] == 1.0
    assert symmetric["statistic"] == pytest.approx(
        (symmetric["estimate"] - 1) / symmetric["std_error"]
    )


def test_the_scale_of_a_test_is_told(run):
    code, out, err = run("fit", "data.csv", *LOGIT, "--ask", BENT, "--transform", "logit")
    assert code == 0
    assert "Tests of value = 0.5 on the logit scale; normal quantiles." in out
    assert "The interval here is made on the logit scale instead." in err
    assert "--transform" not in err  # it is there already


def test_a_transform_that_does_not_fit_is_refused(run):
    arguments = ("fit", "data.csv", *LOGIT, "--ask", "Intercept", "--ask", BENT)
    check_refusal(*run(*arguments, "--transform", "log", "--null", "-1"), "above 0")
    check_refusal(*run(*arguments, "--transform", "logit"), "Intercept: The transform needs")
    check_refusal(*run(*arguments, "--transform", "square"), "invalid choice: 'square'")


def test_a_page_tells_rows_clusters_and_its_command(run, tmp_path):
    place = str(tmp_path / "page.html")
    arguments = (
        "fit", "gaps.csv", "y ~ x + C(site)", "--family", "logit", "--ask",
        "average_comparison('x', by='site')", "--clusters", "village", "--report", place,
        "--title", "Does <x> work?", "--question", "By how much?",
    )  # fmt: skip
    code, _, err = run(*arguments)
    assert code == 0, err
    page = Path(place).read_text()
    assert "<h1>Does &lt;x&gt; work?</h1>" in page
    assert "By how much?" in page
    assert page.count("Average of y if x = 1 in every row, minus the same if x = 0, by site") == 1
    said = html.unescape(" ".join(re.sub("<[^>]+>", " ", page.split("<main>")[1]).split()))
    assert "Data gaps.csv, 195 of 200 rows" in said
    assert "Left out 5 of 200 rows with missing values (x: 5)" in said
    assert "Clusters village" in said
    assert "Variance clustered (CR0, 25 clusters)" in said
    assert "The command: implicit-delta fit gaps.csv 'y ~ x + C(site)' --family logit" in said
    assert "--ask \"average_comparison('x', by='site')\"" in said
    for python in ("infer(", "compare(", "profile(", "model, psi"):
        assert python not in said
    typed = said.split("The command: ")[1].split(" method Infinitesimal")[0]
    assert shlex.split(typed) == ["implicit-delta", *arguments]


def test_a_page_says_what_a_coefficient_is(run, tmp_path):
    code, _, err = run("fit", *OK, "--ask", "x", "--report", tmp_path / "page.html")
    assert code == 0, err
    words = "<h1>How large is the coefficient of x, and how sure is that?</h1>"
    assert words in (tmp_path / "page.html").read_text()


def test_other_spellings_of_a_success_are_refused(tmp_path, capsys):
    path = tmp_path / "answers.csv"
    path.write_text("x,b\n" + "\n".join(f"{k},{('yes', 'Yes', 'no')[k % 3]}" for k in range(30)))
    assert main(["fit", str(path), "b ~ x", "--family", "logit", "--success", "yes"]) == 2
    assert "'yes' and 'Yes'" in capsys.readouterr().err
