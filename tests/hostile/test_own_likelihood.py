"""Own likelihoods in hostile hands: counts of zero, changed data, point nulls, names."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import xlogy
from scipy.stats import binom, norm, poisson

import implicit_delta as idm
from implicit_delta.models.printing import headline

Y = np.random.default_rng(0).normal(2, 1.5, 50)
NO_EVENT = -np.log(0.05)
HOURS = np.array([1.0, 2.0])


def rate(loglik, start=1.0, **given):
    return idm.from_loglik(loglik, start={"r": start}, bounds={"r": (0, None)}, **given)


def normal(data=Y, **given):
    return idm.from_loglik(
        lambda th: norm.logpdf(data, th.mu, th.s),
        start={"mu": 1.0, "s": 1.0},
        bounds={"s": (0.01, None)},
        **given,
    )


def poisson_end(count, quantile):
    top = count * np.log(count) - count
    return brentq(lambda a: 2 * (top - count * np.log(a) + a) - quantile, count, 100 * count)


# No event: a log-likelihood that is a line has no unit of its own.


@pytest.mark.parametrize("start", [0.01, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("exposure", [0.1, 1.0, 100.0])
def test_no_event_has_its_limit_for_any_start_and_exposure(start, exposure):
    model = rate(lambda th: np.array([-th.r * exposure]), start)
    assert float(idm.limit(model, "r")) * exposure == pytest.approx(NO_EVENT, rel=1e-5)
    high = idm.profile(model, "r").interval.high
    assert high * exposure == pytest.approx(1.959964**2 / 2, rel=1e-5)


@pytest.mark.parametrize(
    "loglik",
    [
        lambda th: -th.r * HOURS / 3,
        lambda th: np.array([-th.r - 3.0]),
        lambda th: poisson.logpmf(np.array([0]), th.r + 3.0),
        lambda th: poisson.logpmf(np.array([0]), th.r + 0.02),
        lambda th: poisson.logpmf(np.array([0, 0]), th.r * HOURS / 3 + 1.0),
        lambda th: xlogy(0, th.r) - np.array([th.r]),
    ],
    ids=["two rows", "constant", "background", "little background", "two channels", "xlogy"],
)
def test_no_event_has_its_limit_however_it_is_written(loglik):
    assert float(idm.limit(rate(loglik), "r")) == pytest.approx(NO_EVENT, rel=1e-5)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_a_channel_without_events_leaves_the_other_its_limit(count):
    model = idm.from_loglik(
        lambda th: np.array([count * np.log(th.a) - th.a, -th.b]),
        start={"a": 1.0, "b": 1.0},
        bounds={"a": (0, None), "b": (0, None)},
    )
    assert float(idm.limit(model, "a")) == pytest.approx(poisson_end(count, 2.705543), rel=1e-5)
    assert float(idm.limit(model, "b")) == pytest.approx(NO_EVENT, rel=1e-5)


# Data that change after the fit.

QUESTIONS = {
    "infer": lambda m: idm.infer(m, "mu"),
    "infer again": lambda m: idm.infer(m, "s"),
    "robust": lambda m: idm.infer(m, "mu", robust=True),
    "summary": lambda m: m.summary(),
    "profile": lambda m: idm.profile(m, "mu"),
    "limit": lambda m: idm.limit(m, "mu"),
    "fix": lambda m: m.fix(mu=0.0),
    "polish": idm.polish,
    "test": lambda m: idm.likelihood_ratio({"mu": 2.0}, m),
    "contour": lambda m: idm.contour(m, ["mu", "s"]),
    "bootstrap": lambda m: idm.infer(m, "mu", idm.Bootstrap(20)),
}


def shifted(data):
    data += 1


def shuffled(data):
    data[:] = data[::-1].copy()


def one_row(data):
    data[7] = 9.0


def missing(data):
    data[3] = np.nan


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("asked", [False, True], ids=["at once", "asked before"])
def test_data_that_changed_since_the_fit_are_refused(question, asked):
    data = Y.copy()
    model = normal(data)
    if asked:
        QUESTIONS[question](model)
    shifted(data)
    with pytest.raises(idm.ImplicitDeltaError, match="has changed since the fit"):
        QUESTIONS[question](model)


@pytest.mark.parametrize("change", [shuffled, one_row, missing])
def test_any_change_is_seen(change):
    data = Y.copy()
    model = normal(data)
    change(data)
    with pytest.raises(idm.ImplicitDeltaError, match="has changed since the fit"):
        idm.infer(model, "mu")


@pytest.mark.parametrize("question", ["infer", "profile", "summary"])
@pytest.mark.parametrize("given", ["theta", "residuals", "score"])
def test_changed_data_are_refused_for_fits_of_other_kinds(question, given):
    data = Y.copy()
    if given == "residuals":
        model = idm.from_residuals(lambda th: data - th.mu, start={"mu": 1.0})
    else:
        where = {"theta": {"mu": Y.mean()}} if given == "theta" else {"start": {"mu": 0.0}}
        slope = {"score": lambda th: (data - th.mu)[:, None]} if given == "score" else {}
        model = idm.from_loglik(lambda th: norm.logpdf(data, th.mu), **where, **slope)
    shifted(data)
    with pytest.raises(idm.ImplicitDeltaError, match="has changed since the fit"):
        QUESTIONS[question](model)


def test_a_loop_that_binds_late_is_seen():
    models = []
    for data in (Y, Y + 1):
        models.append(idm.from_loglik(lambda th: norm.logpdf(data, th.mu), start={"mu": 0.0}))  # noqa: B023
    assert idm.infer(models[1], "mu").value == pytest.approx(Y.mean() + 1)
    with pytest.raises(idm.ImplicitDeltaError, match="a loop"):
        idm.infer(models[0], "mu")


def test_data_that_are_restored_or_fitted_again_are_answered():
    data = Y.copy()
    model = normal(data)
    shifted(data)
    assert idm.infer(normal(data), "mu").value == pytest.approx(Y.mean() + 1)
    data[:] = Y
    assert idm.infer(model, "mu").value == pytest.approx(Y.mean())


# Tests between nested fits.


@pytest.mark.parametrize("mu", [-3.0, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("twice", [False, True], ids=["same function", "functions of their own"])
def test_wald_is_that_of_the_larger_fit_wherever_the_smaller_one_is(mu, twice):
    large = normal()
    found = idm.likelihood_ratio((normal() if twice else large).fix(mu=mu), large)
    n, spread = Y.size, Y.std()
    assert found["Wald"].statistic == pytest.approx(n * (Y.mean() - mu) ** 2 / spread**2, rel=1e-5)
    ratio = n * np.log(np.mean((Y - mu) ** 2) / spread**2)
    assert found.statistic == pytest.approx(ratio, rel=1e-6)
    assert "bounds" not in repr(found)
    share = 1 - 2 * (Y.mean() - mu) ** 2 / np.mean((Y - mu) ** 2)  # of a positive determinant
    assert ("No score test" in repr(found)) == (share < 0)
    if share > 0:
        score = n * (Y.mean() - mu) ** 2 / np.mean((Y - mu) ** 2) / share
        assert found["score"].statistic == pytest.approx(score, rel=1e-4)


# Log-likelihoods that are not defined at their bound, or beyond.

ENDS_AT_ZERO = {
    "zero times log": lambda th: np.array([0 * np.log(th.r) - th.r]),
    "scipy": lambda th: poisson.logpmf(np.array([0]), th.r),
    "scipy, rows": lambda th: poisson.logpmf(np.zeros(4), th.r * np.array([0.1, 0.2, 0.3, 0.4])),
    "NaN at zero": lambda th: np.array([-th.r if th.r > 0 else np.nan]),
    "in one number": lambda th: np.array([np.sum(0 * np.log(th.r) - th.r * HOURS / 3)]),
}


@pytest.mark.parametrize("loglik", ENDS_AT_ZERO.values(), ids=ENDS_AT_ZERO)
@pytest.mark.parametrize("start", [1e-3, 1.0, 20.0])
def test_a_count_of_zero_has_its_limit_though_nothing_is_beyond(loglik, start):
    model = rate(loglik, start)
    assert model.theta.r == 0
    assert float(idm.limit(model, "r")) == pytest.approx(NO_EVENT, rel=1e-5)


@pytest.mark.parametrize(("trials", "close"), [(4, 0.08), (10, 0.02), (20, 2e-3), (300, 1e-4)])
def test_none_and_all_of_some_trials_have_their_limits(trials, close):
    """The exact one-sided limit is 1 - 0.05^(1 / trials); few trials are no line."""
    ends = [(0, "upper"), (trials, "lower")]
    none, everything = (
        float(
            idm.limit(
                idm.from_loglik(
                    lambda th, k=k: binom.logpmf(np.array([k]), trials, th.p),
                    start={"p": 0.4},
                    bounds={"p": (0, 1)},
                ),
                "p",
                side=side,
            )
        )
        for k, side in ends
    )
    assert none == pytest.approx(1 - 0.05 ** (1 / trials), rel=close)
    assert everything == pytest.approx(1 - none, rel=close)


@pytest.mark.parametrize("count", [7, 200])
@pytest.mark.parametrize("scipys", [True, False])
def test_a_second_channel_has_its_own_error_beside_a_count_of_zero(count, scipys):
    counts = np.array([0, count])

    def loglik(th):
        rates = np.array([th.r, th.b])
        return poisson.logpmf(counts, rates) if scipys else counts * np.log(rates) - rates

    model = idm.from_loglik(
        loglik, start={"r": 1.0, "b": 3.0}, bounds={"r": (0, None), "b": (0, None)}
    )
    assert float(idm.limit(model, "r")) == pytest.approx(NO_EVENT, rel=1e-5)
    assert float(idm.limit(model, "b")) == pytest.approx(poisson_end(count, 2.705543), rel=1e-5)
    assert idm.infer(model, "b").standard_error == pytest.approx(np.sqrt(count), rel=1e-5)


@pytest.mark.parametrize(
    "loglik",
    [
        lambda th: -np.log(th.r) - 0 * Y,
        lambda th: norm.logpdf(np.full(3, 2.0), 2.0, th.r),
        lambda th: np.array([-np.log(th.r) + 0 / th.r]),
    ],
    ids=["no end", "equal data", "NaN and no end"],
)
def test_a_likelihood_that_rises_to_its_bound_without_end_is_refused(loglik):
    with pytest.raises(idm.ImplicitDeltaError, match=r"NaN or infinite|not defined|No maximum"):
        idm.infer(rate(loglik), "r")


# Points as null hypotheses.


@pytest.mark.parametrize("null", [{"mu": 0.0, "s": 1.0}, {"mu": 2.0, "s": 1.5}, {0: 2.0, 1: 1.5}])
def test_a_point_is_tested_against_a_fit(null):
    model = normal()
    mu, s = null.values()
    found = idm.likelihood_ratio(null, model)
    expected = 2 * (norm.logpdf(Y, *model.theta).sum() - norm.logpdf(Y, mu, s).sum())
    assert found.statistic == pytest.approx(expected, rel=1e-9)
    assert found.df == 2
    n, spread = Y.size, Y.std()
    wald = n * ((Y.mean() - mu) ** 2 + 2 * (spread - s) ** 2) / spread**2
    assert found["Wald"].statistic == pytest.approx(wald, rel=1e-5)


def test_a_dictionary_of_some_parameters_is_what_fix_makes_of_it():
    model = normal()
    assert repr(idm.likelihood_ratio({"mu": 1.8}, model)) == repr(
        idm.likelihood_ratio(model.fix(mu=1.8), model)
    )


def test_a_nuisance_at_its_bound_leaves_a_test():
    counts, on = np.array([0, 4]), np.array([0.0, 1.0])
    model = idm.from_loglik(
        lambda th: xlogy(counts, th.s + th.b * on) - th.s - th.b * on,
        start={"b": 1.0, "s": 1.0},
        bounds={"b": (0, None), "s": (0, None)},
    )
    assert model.theta.s == pytest.approx(0.0, abs=1e-9)
    found = idm.likelihood_ratio(model.fix(b=8.0), model)
    assert found.statistic == pytest.approx(2 * (4 * np.log(4 / 8) - 4 + 8), rel=1e-6)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: normal().fix(mu=0.0, s=1.0), "likelihood_ratio"),
        (lambda: normal().fix({"mu": 1.0}, mu=2.0), "'mu' is there twice"),
        (lambda: idm.limit(normal(), lambda th: [th.mu, th.s]), "2 values"),
        (lambda: idm.limit(normal(), ["mu", "s"]), "2 values"),
        (lambda: normal(starts=2.5), "whole number"),
        (lambda: 3 + normal(), "unsupported"),
        (lambda: idm.likelihood_ratio({"nu": 1.0}, normal()), "'nu' is no parameter"),
    ],
)
def test_slips_are_told(ask, told):
    with pytest.raises((TypeError, ValueError), match=told):
        ask()


def test_precisions_have_no_information_criteria():
    def fitted(kind):
        weights = np.full(50, 10.0)
        return idm.from_loglik(
            lambda th: norm.logpdf(Y, th.mu), start={"mu": 1.0}, weights=weights, weight_kind=kind
        )

    text = repr(fitted("precision").summary())
    for word in ("AIC", "BIC", "log-likelihood", "deviance"):
        assert word not in text
    assert "log-likelihood" not in headline(fitted("precision"))
    assert "AIC" in repr(fitted("frequency").summary())


# Names.

THETA = idm.from_loglik(lambda th: norm.logpdf(Y, th.mu, th.s), start={"mu": 3.0, "s": 1.0}).theta


@pytest.mark.parametrize(
    "reorder",
    [
        np.sort,
        np.flip,
        np.unique,
        lambda th: np.roll(th, 1),
        lambda th: np.partition(th, 1),
        lambda th: np.take(th, [1, 0]),
        lambda th: th[[1, 0]],
        lambda th: th[::-1],
    ],
)
def test_what_is_reordered_has_no_names(reorder):
    seen = []

    def psi(th):
        with pytest.raises(AttributeError):
            _ = reorder(th).mu
        seen.append(th.mu)
        return th.mu

    model = normal()
    model.evaluate(psi, model.theta)
    assert seen == [model.theta.mu]
    with pytest.raises(AttributeError):
        _ = reorder(THETA).mu


def test_parameters_are_read_only_by_name():
    with pytest.raises(TypeError, match="read-only"):
        THETA["mu"] = 4.0
    with pytest.raises(AttributeError, match="read-only"):
        THETA.mu = 4.0


def test_sum_adds_models():
    both = sum([normal(), idm.measurement(mu=(2.0, 0.1))])
    assert both.theta.mu == pytest.approx((normal() + idm.measurement(mu=(2.0, 0.1))).theta.mu)


@pytest.mark.parametrize(
    "pairs", [[(0, 1), (0, 3)], [(None, 1), (0, None)], np.array([[0, 1], [0, 3]])]
)
def test_bounds_of_an_array_are_one_pair_or_one_for_each(pairs):
    x = np.linspace(0, 1, 50)
    model = idm.from_loglik(
        lambda th: norm.logpdf(Y, th.beta[0] + th.beta[1] * x),
        start={"beta": [0.1, 0.2]},
        bounds={"beta": pairs},
    )
    assert model.theta[0] == 1.0  # held by its own bound
    free = np.sum(x * (Y - 1)) / np.sum(x**2)
    assert model.theta[1] == pytest.approx(free, rel=1e-6)


@pytest.mark.parametrize("pairs", [[(0, 1)], [(0, 1)] * 3, (0, 1, 2), 5.0])
def test_bounds_of_another_number_are_refused(pairs):
    with pytest.raises(TypeError, match="must be a pair"):
        idm.from_loglik(
            lambda th: norm.logpdf(Y, th.beta.sum()),
            start={"beta": [0.1, 0.2]},
            bounds={"beta": pairs},
        )


# Steps, exact data, redundant parameters.


@pytest.mark.parametrize(
    "loglik",
    [
        lambda th: -np.floor(np.abs(Y - th[0]) * 10) / 10,
        lambda th: -np.round((Y - th[0]) ** 2, 1),
        lambda th: -((Y - int(th[0])) ** 2),
        lambda th: -np.abs(np.round(Y) - np.round(th[0])),
        lambda th: np.array([-np.floor(np.abs(Y - th[0]) * 10).sum() / 10]),
        lambda th: np.where(th[0] > Y, -1.0, -2.0),
    ],
    ids=["floor", "round", "integer", "both rounded", "sum", "comparison"],
)
def test_a_log_likelihood_in_steps_is_refused_by_its_fit(loglik):
    with pytest.raises(idm.ImplicitDeltaError, match=r"steps|No maximum|uncertain"):
        idm.from_loglik(loglik, start=[0.0])


@pytest.mark.parametrize(
    "loglik",
    [
        lambda th: -1e6 - ((Y - th[0]) ** 2) / 2,
        lambda th: np.array([-np.sum((Y - th[0]) ** 2) / 2 - 1e9]),
        lambda th: -np.where(np.arange(50) < 5, (Y - th[0]) ** 2, 7.0) / 2,
        lambda th: np.array([-((2 - th[0]) ** 2) / 2]),
    ],
    ids=["large terms", "large sum", "most rows constant", "one row at its own maximum"],
)
def test_a_smooth_log_likelihood_is_not_called_one_in_steps(loglik):
    assert np.isfinite(idm.from_loglik(loglik, start=[0.0]).theta).all()


X = np.arange(6.0)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("rule", ["mle", "unbiased"])
def test_residuals_that_are_rounding_are_told(scale, rule):
    def residuals(th):
        return scale * (1 + 2 * X / 3) - th[0] - th[1] * X

    with pytest.raises(ValueError, match="fits these data exactly"):
        idm.from_residuals(residuals, start=[0.0, 0.0], variance=rule)
    known = idm.from_residuals(residuals, start=[0.0, 0.0], variance=0.01 * scale**2)
    design = np.column_stack([np.ones(6), X])
    errors = 0.1 * scale * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    found = idm.infer(known, idm.parameters)
    np.testing.assert_allclose(found.standard_error, errors, rtol=1e-6)


@pytest.mark.parametrize("noise", [1e-8, 1e-3])
def test_small_residuals_that_are_none_of_rounding_are_answered(noise):
    wiggle = noise * np.array([1, -1, 1, 1, -1, -1.0])
    model = idm.from_residuals(lambda th: 1 + 2 * X + wiggle - th[0] - th[1] * X, start=[0.0, 0.0])
    design = np.column_stack([np.ones(6), X])
    left = wiggle - design @ np.linalg.lstsq(design, wiggle, rcond=None)[0]
    errors = np.sqrt(left @ left / 4 * np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, errors, rtol=1e-5)


@pytest.mark.parametrize(
    "mean", [lambda th: th.N * th.eff, lambda th: th.N + th.eff, lambda th: th.N + 0 * th.eff]
)
def test_redundant_parameters_with_names_are_fixed_or_measured(mean):
    counts = np.array([20, 22])
    model = idm.from_loglik(
        lambda th: poisson.logpmf(counts, mean(th)), start={"N": 20.0, "eff": 0.9}
    )
    with pytest.raises(idm.ImplicitDeltaError) as caught:
        idm.infer(model, "eff")
    text = str(caught.value)
    assert "model.fix(" in text
    assert "measurement(" in text
    assert "network" not in text
    assert "polish" not in text
    assert idm.infer(model.fix(eff=0.9), "N").standard_error > 1
    assert idm.infer(model + idm.measurement(eff=(0.9, 0.03)), "N").standard_error > 1
