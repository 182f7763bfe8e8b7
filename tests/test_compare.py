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


GROUPS = np.arange(60) // 4
DESIGNS = {
    "clusters": {"clusters": GROUPS},
    "CR1": {"clusters": GROUPS, "robust": "CR1"},
    "HC1": {"robust": "HC1"},
    "HC0": {"robust": True},
    "df": {"df": 7.0},
    "all": {"clusters": GROUPS, "robust": "CR1S", "df": 5.0},
}


@pytest.mark.parametrize("name", DESIGNS)
def test_the_design_reaches_every_method_or_its_row_says_so(model, name):
    design = DESIGNS[name]
    table = idm.compare(model, rate, **design)
    rows = {row.method: row for row in table.rows}
    alone = {"clusters", "robust"}.isdisjoint(design)
    assert ("robust" in rows) == alone  # else every row is
    for method in (idm.Infinitesimal(), idm.FiniteDifference()):
        direct = idm.infer(model.at(model.theta), rate, method, **design)
        row = rows[type(method).__name__]
        assert row.std_error == pytest.approx(direct.standard_error, rel=1e-9)
        np.testing.assert_allclose([row.low, row.high], direct.confidence_interval(), rtol=1e-9)
    drawn = {key: x for key, x in design.items() if key != "robust"}
    direct = idm.infer(model.at(model.theta), rate, idm.Bootstrap(rng=0), **drawn)
    np.testing.assert_allclose(
        [rows["Bootstrap"].low, rows["Bootstrap"].high], direct.confidence_interval(), rtol=1e-9
    )
    assert np.isnan(rows["profile"].low)
    for argument in design:
        assert f"{argument}=" in table.failures["profile"]


def test_functions_take_the_design_or_are_told_how(model):
    clustered = {"clusters": GROUPS}
    table = idm.compare(
        model,
        rate,
        {
            "infer": idm.infer,
            "passes on": lambda m, psi, **design: idm.infer(m, psi, **design),
            "silent": lambda m, psi: idm.infer(m, psi),
            "parametric": idm.Bootstrap(20, kind="parametric", rng=0),
            "two ways": idm.Bootstrap(20, rng=0),
        },
        **clustered,
    )
    expected = idm.infer(model, rate, **clustered).standard_error
    errors = {row.method: row.std_error for row in table.rows}
    assert errors["infer"] == pytest.approx(expected) == pytest.approx(errors["passes on"])
    assert np.isnan(errors["silent"])
    assert "**design" in table.failures["silent"]
    assert "neither robust nor clustered" in table.failures["parametric"]


def test_what_no_bootstrap_can_draw_is_said(model):
    ways = (GROUPS, np.arange(60) % 9)
    table = idm.compare(model, rate, [idm.Bootstrap(20, rng=0)], clusters=ways)
    assert "one way of grouping" in table.failures["Bootstrap"]
    in_time = idm.compare(
        model, rate, [idm.Infinitesimal(), idm.Bootstrap(20, rng=0)], robust=idm.HAC(3)
    )
    assert "Bootstrap" in in_time.failures
    expected = idm.infer(model, rate, robust=idm.HAC(3)).standard_error
    assert in_time.rows[0].std_error == pytest.approx(expected)


def test_wrong_labels_are_refused_at_once(model):
    with pytest.raises(ValueError, match="60"):
        idm.compare(model, rate, clusters=np.arange(7))
