"""Ratios live on the log scale: their tests are of 1, their intervals those of the logarithm."""

import json
import pickle

import numpy as np
import pytest
from scipy import stats

import implicit_delta as idm
from implicit_delta.estimate import Estimate

pd = pytest.importorskip("pandas")
smf = pytest.importorskip("statsmodels.formula.api")

RNG = np.random.default_rng(5)
N = 300
DATA = pd.DataFrame(
    {
        "treated": (RNG.random(N) < 0.5) * 1,
        "age": RNG.uniform(18, 75, N),
        "region": RNG.choice(["city", "hills", "valley"], N),
        "village": RNG.integers(0, 30, N),
    }
)
INDEX = -0.5 + 0.4 * DATA.treated + 0.02 * (DATA.age - 45)
DATA["well"] = (RNG.random(N) < 1 / (1 + np.exp(-INDEX))) * 1
MODEL = idm.from_statsmodels(smf.logit("well ~ treated * region + age", DATA).fit(disp=0))
LOGS = {"ratio": "lnratio", "oddsratio": "lnoddsratio"}


def asked(how, **options):
    return idm.infer(MODEL, idm.average_comparison("treated", how=how, by="region"), **options)


@pytest.mark.parametrize("how", LOGS)
@pytest.mark.parametrize("options", [{}, {"clusters": DATA.village}, {"robust": "HC3"}])
def test_tests_and_intervals_are_those_of_the_logarithm(how, options):
    found, log = asked(how, **options), asked(LOGS[how], **options)
    np.testing.assert_allclose(found.value, np.exp(log.value), rtol=1e-12)
    np.testing.assert_allclose(
        found.standard_error, found.value * log.standard_error, rtol=1e-9
    )  # as published
    for simultaneous in (False, True):
        ends = found.confidence_interval(0.9, simultaneous=simultaneous)
        of_log = log.confidence_interval(0.9, simultaneous=simultaneous)
        np.testing.assert_allclose(ends, np.exp(of_log), rtol=1e-8)
    np.testing.assert_allclose(found.test().p_value, log.test().p_value, rtol=1e-7)
    np.testing.assert_allclose(found.test(2.0).p_value, log.test(np.log(2)).p_value, rtol=1e-7)
    joint, of_log = found.test(joint=True), log.test(joint=True)
    np.testing.assert_allclose(joint, of_log, rtol=1e-6)
    table, of_log = found.to_dict(), log.to_dict()
    assert table["null"] == [1.0] * 3
    np.testing.assert_allclose(table["p_value"], of_log["p_value"], rtol=1e-7)
    np.testing.assert_allclose(table["conf_low"], np.exp(of_log["conf_low"]), rtol=1e-8)
    np.testing.assert_allclose(found.conf_int()[:, 1], table["conf_high"], rtol=1e-12)


@pytest.mark.parametrize("how", LOGS)
def test_identity_asks_for_the_symmetric_interval(how):
    found = asked(how)
    z = stats.norm.ppf(0.975) * found.standard_error
    for low, high in (
        found.confidence_interval(transform="identity"),
        [found.to_dict(transform="identity")[end] for end in ("conf_low", "conf_high")],
    ):
        np.testing.assert_allclose([low, high], [found.value - z, found.value + z], rtol=1e-12)
    expected = (found.value - 1) / found.standard_error
    np.testing.assert_allclose(found.test(transform="identity").statistic, expected, rtol=1e-12)
    np.testing.assert_allclose(found.to_dict(transform="identity")["statistic"], expected)


def test_the_line_below_the_table_names_the_scale():
    assert repr(asked("ratio")).endswith("Tests of value = 1 on the log scale; normal quantiles.")
    assert "Tests of value = 2 on the log scale; " in asked("ratio").summary(null=2)
    assert "Tests of value = 1; " in asked("ratio").summary(transform="identity")
    assert "Tests of value = 1 on the log scale" in asked("oddsratio")._repr_html_()
    assert repr(asked("lnratio")).endswith("Tests of value = 0; normal quantiles.")


@pytest.mark.parametrize("null", [0.0, -1.0, [1.0, 1.0, 0.0]])
def test_a_ratio_is_not_tested_against_what_it_cannot_be(null):
    for ask in (asked("ratio").test, lambda null: asked("ratio").to_dict(null=null)):
        with pytest.raises(ValueError, match=r"above 0.*transform=.identity."):
            ask(null=null)
    assert np.all(np.isfinite(asked("ratio").test(null, transform="identity").p_value))


@pytest.mark.filterwarnings("ignore:The function bends:implicit_delta.NonlinearityWarning")
def test_selections_keep_the_scale_and_other_estimates_do_not():
    found = asked("oddsratio", influence=True)
    assert found.scale == found[0].scale == found[1:].scale == "log"
    assert found[0].test().p_value == found.test().p_value[0]
    assert "question" in found[0].diagnostics.notes
    for other in (
        found.contrast([1, -1, 0]),
        found.contrast([1, 0, 0]) - 1.0,
        found - 1.0,
        2 * found,
        found.apply(np.log),
        found[0] / found[1],
    ):
        assert other.scale == ""
        assert "question" not in other.diagnostics.notes
    np.testing.assert_allclose(found.apply(np.log).test().p_value, found.test().p_value, rtol=1e-6)


def test_a_join_keeps_the_scale_of_each():
    ratio, plain = asked("ratio", influence=True), asked("difference", influence=True)
    both = idm.join(ratio, plain, ratio)
    assert both.scale == ("log",) * 3 + ("",) * 3 + ("log",) * 3
    alone = np.concatenate([one.test().p_value for one in (ratio, plain, ratio)])
    np.testing.assert_allclose(both.test().p_value, alone, rtol=1e-9)
    np.testing.assert_allclose(
        both.conf_int(), np.vstack([ratio.conf_int(), plain.conf_int(), ratio.conf_int()])
    )
    assert both.to_dict()["null"] == [1.0] * 3 + [0.0] * 3 + [1.0] * 3
    assert "of ratios on the log scale" in repr(both)
    assert both[3:6].scale == ""
    assert both[0].scale == idm.join(ratio, ratio).scale == "log"
    with pytest.warns(idm.ImplicitDeltaWarning, match="same fitted model"):
        apart = idm.join(ratio, plain, independent=True)
    assert apart[:3].scale == "log"


def test_files_and_pickles_keep_the_scale(tmp_path):
    ratio, plain = asked("ratio", influence=True), asked("difference", influence=True)
    for found in (ratio, plain, idm.join(ratio, plain)):
        found.save(tmp_path / "found.npz")
        for copy in (Estimate.load(tmp_path / "found.npz"), pickle.loads(pickle.dumps(found))):
            assert copy.scale == found.scale
            assert copy.to_dict() == found.to_dict()


@pytest.mark.parametrize("scale", ["ln", 1, ("log", "", ""), ["log", "logit"]])
def test_other_scales_are_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        Estimate([1.0, 2.0], np.eye(2), ("a", "b"), "by hand", scale=scale)


def test_the_log_scale_is_of_positive_values():
    with pytest.raises(ValueError, match="above 0"):
        Estimate([1.0, -2.0], np.eye(2), ("a", "b"), "by hand", scale="log")
    assert Estimate([1.0, -2.0], np.eye(2), ("a", "b"), "by hand", scale=("log", "")).scale == (
        "log",
        "",
    )


@pytest.mark.parametrize("kind", ["interval", "forest"])
def test_pictures_have_a_log_axis_and_the_line_at_one(kind):
    plt = pytest.importorskip("matplotlib.pyplot")
    found = asked("oddsratio")
    ax = found.plot(kind=kind)
    assert ax.get_xscale() == "log"
    lines = [line.get_xdata() for line in ax.lines]
    assert any(np.array_equal(x, [1, 1]) for x in lines)
    plain = found.plot(kind=kind, transform="identity")
    assert plain.get_xscale() == "linear"
    plt.close("all")


def test_bootstraps_and_simulations_have_the_scale_too():
    question = idm.average_comparison("treated", how="ratio")
    draws = idm.infer(MODEL, question, idm.Simulation(200, rng=0))
    assert draws.scale == "log"
    low, high = draws.confidence_interval(kind="percentile")
    assert 0 < low < draws.value < high

    def fit(data):
        return smf.logit("well ~ treated + age", data).fit(disp=0)

    again = idm.bootstrap(fit, DATA, question, replicates=30, jackknife=False, rng=0)
    assert again.scale == "log"
    assert again.to_dict()["null"] == [1.0]
    assert again.diagnostics.notes["question"].startswith("Average of the outcome if treated = 1")


def test_a_bent_ratio_is_straight_on_its_own_scale():
    """The doubt is about the interval that is given, which is not symmetric."""
    plain = idm.infer(MODEL, ratio_of, strict=False)
    asked_for = idm.infer(MODEL, idm.average_comparison("treated", how="oddsratio"))
    log = idm.infer(MODEL, idm.average_comparison("treated", how="lnoddsratio"))
    np.testing.assert_allclose(
        asked_for.diagnostics.nonlinearity, log.diagnostics.nonlinearity, rtol=1e-6
    )
    assert plain.diagnostics.nonlinearity > 2 * asked_for.diagnostics.nonlinearity


def ratio_of(params):
    high = params.predict(DATA.assign(treated=1)).mean()
    low = params.predict(DATA.assign(treated=0)).mean()
    return high / (1 - high) / (low / (1 - low))


def test_one_number_for_the_bend_in_the_warning_and_in_the_diagnostics():
    few = DATA.iloc[:60].assign(village=np.arange(60) // 4)
    model = idm.from_statsmodels(smf.logit("well ~ treated + age", few).fit(disp=0))

    def odds(params):
        return np.exp(params["treated"])

    with pytest.warns(idm.NonlinearityWarning, match="nonlinearity") as caught:
        found = idm.infer(model, odds, clusters=few.village, robust="CR2", strict=False)
    told = next(str(w.message) for w in caught if w.category is idm.NonlinearityWarning)
    assert f"nonlinearity {found.diagnostics.nonlinearity:.2g}" in told


def test_the_warning_names_the_row_that_bends_most():
    few = DATA.iloc[:60]
    model = idm.from_statsmodels(smf.logit("well ~ treated + age", few).fit(disp=0))
    with pytest.warns(idm.NonlinearityWarning, match=r"nonlinearity \S+ of 'odds', where"):
        idm.infer(
            model, lambda p: np.array([p["age"], np.exp(p["treated"])]), names=["age", "odds"],
            strict=False,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (
            idm.average_comparison("treated"),
            "Average of well if treated = 1 in every row, minus the same if treated = 0",
        ),
        (
            idm.average_comparison("treated", by="region"),
            "Average of well if treated = 1 in every row, minus the same if treated = 0, by region",
        ),
        (
            idm.average_comparison("treated", how="ratio", by=["region", "treated"]),
            "Average of well if treated = 1 in every row, divided by the same if treated = 0, "
            "by region and treated",
        ),
        (
            idm.average_comparison("treated", how="oddsratio"),
            "Odds of the average of well if treated = 1 in every row, divided by those if "
            "treated = 0",
        ),
        (
            idm.average_comparison("region", values=("city", "hills")),
            "Average of well if region = hills in every row, minus the same if region = city",
        ),
        (
            idm.average_comparison("age", values=10),
            "Average of well if age were 10 higher in every row, minus the same with age as it is",
        ),
        (
            idm.average_comparison("age", values="iqr"),
            "Average of well if age = its third quartile in every row, minus the same if age = "
            "its first quartile",
        ),
        (
            idm.average_comparison("age", values=-5),
            "Average of well if age were 5 lower in every row, minus the same with age as it is",
        ),
        (idm.average_slope("age"), "Average change of well per unit of age"),
        (idm.average_slope(1), "Average change of well per unit of column 1"),
        (
            idm.average_slope("age", population=True),
            "Average change of well per unit of age, in the population of the rows",
        ),
        (idm.average_prediction(by=DATA.region), "Average prediction of well, by region"),
        (idm.predictions(DATA[:4]), "Prediction of well for each of 4 rows"),
        (
            idm.average_prediction(DATA[:4]),
            "Average prediction of well, over 4 given rows",
        ),
    ],
)
def test_questions_carry_their_sentence(question, words, tmp_path):
    found = idm.infer(MODEL, question)
    assert found.diagnostics.notes["question"] == words
    found.save(tmp_path / "found.npz")
    assert Estimate.load(tmp_path / "found.npz").diagnostics.notes["question"] == words


@pytest.mark.parametrize("how", ["lnor", "lnodds", "or", "logodds"])
def test_log_odds_ratios_are_found_under_other_names(how):
    with pytest.raises(ValueError, match="oddsratio"):
        idm.average_comparison("treated", how=how)


def test_the_command_follows(capsys, tmp_path):
    from implicit_delta.command.main import main

    DATA.to_csv(tmp_path / "data.csv", index=False)
    words = [
        "fit", str(tmp_path / "data.csv"), "well ~ treated * region + age", "--family", "logit",
        "--ask", "average_comparison('treated', how='ratio', by='region')",
    ]  # fmt: skip
    found = asked("ratio")
    main([*words, "--json"])
    rows = json.loads(capsys.readouterr().out)["answers"][0]["rows"]
    np.testing.assert_allclose([row["p_value"] for row in rows], found.test().p_value, rtol=1e-6)
    assert [row["null"] for row in rows] == [1.0] * 3
    main(words)
    assert "Tests of value = 1 on the log scale" in capsys.readouterr().out
