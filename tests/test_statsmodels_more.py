"""Fits of statsmodels whose rows are dependent or censored: the standard errors of R."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

sm = pytest.importorskip("statsmodels.api")

from statsmodels.base.model import GenericLikelihoodModel
from statsmodels.discrete.conditional_models import (
    ConditionalLogit,
    ConditionalPoisson,
)
from statsmodels.discrete.truncated_model import HurdleCountModel

import implicit_delta as idm
from implicit_delta.models.redraws import reweight
from implicit_delta.testing import check_model

CASES = json.loads((Path(__file__).parent / "golden" / "statsmodels_more.json").read_text())[
    "cases"
]


def quietly(fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit()


def columns(case, *names):
    return [np.array(CASES[case]["data"][name]) for name in names]


def cox(ties, **options):
    month, event, *X = columns("cox", "month", "event", "age", "sex", "ph.ecog")
    return sm.PHReg(month, np.column_stack(X), status=event, ties=ties).fit(**options)


class Tobit(GenericLikelihoodModel):
    """Normal outcomes, of which those below zero are seen as zero; log(scale) comes last."""

    def loglikeobs(self, params):
        mean, scale = self.exog @ params[:-1], np.exp(params[-1])
        seen = norm.logpdf(self.endog, mean, scale)
        return np.where(self.endog > 0, seen, norm.logcdf(-mean / scale))


def tobit():
    y, *X = columns("tobit", "affairs", "age", "yearsmarried", "rating")
    model = Tobit(y, sm.add_constant(np.column_stack(X)), extra_params_names=["log scale"])
    return model.fit(start_params=CASES["tobit"]["theta"], disp=0)


def conditional(kind):
    y, *X, groups = columns("clogit", "case", "spontaneous", "induced", "stratum")
    return kind(y, np.column_stack(X), groups=groups).fit(disp=0)


def arima():
    return sm.tsa.ARIMA(columns("arima", "y")[0], order=(1, 0, 1)).fit(cov_type="approx")


def mixed(**options):
    y, x, groups = columns("mixed", "Reaction", "Days", "subject")
    X = sm.add_constant(x)
    return sm.MixedLM(y, X, groups=groups, exog_re=X).fit(**options)


def hurdle():
    y, *X = columns("hurdle", "Days", "male", "slow")
    return HurdleCountModel(y, sm.add_constant(np.column_stack(X))).fit(disp=0)


FITS = {
    "clogit": (lambda: conditional(ConditionalLogit), [0, 1]),
    "arima": (arima, [1, 2, 0]),  # the variance of the noise is not among R's
    "mixed": (lambda: mixed(reml=False), [0, 1, 2, 3, 4]),
    "tobit": (tobit, [0, 1, 2, 3, 4]),
    "hurdle": (hurdle, [0, 1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize("name", FITS)
def test_as_in_r(name):
    fit, order = FITS[name]
    model = idm.polish(idm.from_statsmodels(quietly(fit)))
    found = idm.infer(model, idm.parameters)
    case = CASES[name]
    np.testing.assert_allclose(found.value[order], case["theta"], rtol=1e-4)
    np.testing.assert_allclose(found.standard_error[order], case["standard_error"], rtol=1e-5)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_robust_and_clustered_errors_of_cox_as_in_r(ties):
    model, expected = idm.from_statsmodels(cox(ties)), CASES["cox"]["fits"][ties]
    inst = columns("cox", "inst")[0]
    for kind, options in {
        "model": {},
        "hc0": {"robust": True},
        "cluster": {"clusters": inst},
    }.items():
        found = idm.infer(model, idm.parameters, **options).standard_error
        np.testing.assert_allclose(found, expected[kind], rtol=1e-7)


def test_clusters_of_a_cox_fit_are_kept():
    inst = columns("cox", "inst")[0]
    fit = cox("breslow", groups=inst)
    found = idm.infer(idm.from_statsmodels(fit), idm.parameters)
    np.testing.assert_allclose(found.standard_error, fit.bse, rtol=1e-10)
    np.testing.assert_allclose(
        found.standard_error, CASES["cox"]["fits"]["breslow"]["cluster"], rtol=1e-6
    )


def test_clusters_of_a_cox_fit_with_efron_ties_as_in_r():
    fit = cox("efron", groups=columns("cox", "inst")[0])
    found = idm.infer(idm.from_statsmodels(fit), idm.parameters).standard_error
    np.testing.assert_allclose(found, CASES["cox"]["fits"]["efron"]["cluster"], rtol=1e-6)


RNG = np.random.default_rng(0)
SURVIVAL = {
    "time": np.ceil(8 * RNG.exponential(size=80)) + 1,
    "X": RNG.normal(size=(80, 2)),
    "status": RNG.uniform(size=80) < 0.7,
}
OTHERS = {
    "entry": {"entry": np.floor(SURVIVAL["time"] * RNG.uniform(size=80) / 2)},
    "strata": {"strata": RNG.integers(3, size=80)},
    "offset": {"offset": RNG.normal(size=80) / 3},
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("ties", ["breslow", "efron"])
@pytest.mark.parametrize("given", [(), ("entry",), ("strata", "offset"), tuple(OTHERS)], ids=str)
def test_partial_likelihood_and_score_residuals(given, ties, weighted):
    options = {key: value for name in given for key, value in OTHERS[name].items()}
    y, X, status = SURVIVAL.values()
    fit = sm.PHReg(y, X, status=status, ties=ties, **options).fit()
    model = idm.from_statsmodels(fit)
    check_model(reweight(model, np.arange(80) % 4 + 0.0) if weighted else model)
    np.testing.assert_allclose(idm.infer(model, idm.parameters).standard_error, fit.bse, rtol=1e-9)
    if ties == "breslow":  # those of statsmodels are always Breslow's
        np.testing.assert_allclose(
            model.terms_along(model.theta, np.eye(2)), fit.score_residuals, atol=1e-10
        )


def test_groups_without_variation_and_offsets_of_counts():
    groups, offset = np.repeat(np.arange(20), 4), RNG.normal(size=80) / 5
    y, X = RNG.poisson(1.0, size=80), SURVIVAL["X"]
    fit = quietly(lambda: ConditionalPoisson(y, X, groups=groups, offset=offset).fit(disp=0))
    model = idm.from_statsmodels(fit)
    constant = y.reshape(20, 4).std(axis=1) == 0
    assert model.n == 20 - constant.sum()
    found = idm.infer(model, idm.parameters)
    np.testing.assert_allclose(found.standard_error, fit.bse, rtol=1e-5)
    # The same slopes as with a dummy for each group.
    dummies = np.column_stack([X, np.eye(20)[groups]])
    full = sm.GLM(y, dummies, family=sm.families.Poisson(), offset=offset)
    np.testing.assert_allclose(found.value, full.fit().params[:2], rtol=1e-4)


def test_a_mixed_model_has_errors_clustered_by_group():
    model = idm.polish(idm.from_statsmodels(quietly(lambda: mixed(reml=False))))
    assert model.n == 17
    assert model.names[:2] == ("const", "x1")
    robust = quietly(lambda: idm.infer(model, idm.parameters, robust=True))
    by_hand = model.terms_along(model.theta, robust_directions(model))
    np.testing.assert_allclose(robust.covariance, by_hand.T @ by_hand, rtol=1e-6)


def robust_directions(model):
    return np.linalg.inv(model.information(model.theta, np.eye(model.d)))


def test_variance_components_beside_random_effects():
    groups = np.repeat(np.arange(15), 8)
    parts = {"half": {g: np.eye(2)[np.repeat([0, 1], 4)] for g in range(15)}}
    x = RNG.normal(size=120)
    y = x + RNG.normal(size=15)[groups] + 0.8 * RNG.normal(size=30)[np.repeat(np.arange(30), 4)]
    y = y + RNG.normal(size=120)
    design = {"groups": groups, "exog_re": np.ones((120, 1)), "exog_vc": parts}
    fit = quietly(lambda: sm.MixedLM(y, sm.add_constant(x), **design).fit(reml=False))
    found = idm.infer(idm.from_statsmodels(fit), idm.parameters)
    np.testing.assert_allclose(found.standard_error, fit.bse, rtol=1e-4)


def test_a_variance_at_zero_is_refused():
    groups = np.repeat(np.arange(20), 4)
    y = RNG.normal(size=80)
    y -= np.repeat(y.reshape(20, 4).mean(axis=1), 4)  # less than no variance between groups
    fit = quietly(lambda: sm.MixedLM(y, np.ones((80, 1)), groups=groups).fit(reml=False))
    with pytest.raises(idm.UnsupportedModelError, match="edge of what is possible"):
        idm.from_statsmodels(fit)


@pytest.mark.parametrize("cov_type", ["opg", "oim", "approx", "robust_approx"])
def test_a_series_keeps_the_covariance_of_its_fit(cov_type):
    y = columns("arima", "y")[0]
    fit = sm.tsa.SARIMAX(y, order=(1, 0, 0), trend="c").fit(disp=0, cov_type=cov_type)
    found = quietly(lambda: idm.infer(idm.from_statsmodels(fit), idm.parameters))
    np.testing.assert_allclose(found.standard_error, fit.bse, rtol=1e-4)
    assert found.names == ("intercept", "ar.L1", "sigma2")


def test_parameters_of_a_series_that_were_held_fixed_are_refused():
    y = columns("arima", "y")[0]
    model = sm.tsa.SARIMAX(y, order=(1, 0, 0), trend="c")
    with model.fix_params({"ar.L1": 0.5}):
        fit = model.fit(disp=0)
    with pytest.raises(idm.UnsupportedModelError, match="held fixed"):
        idm.from_statsmodels(fit)


def panel():
    """40 groups of 5 rows, whose labels do not appear in their order."""
    rng = np.random.default_rng(3)
    group = np.repeat(rng.permutation(40), 5)
    x, effect = rng.normal(size=(200, 2)), rng.normal(size=40)[group]
    y = x @ [1.0, -0.5] + effect + rng.normal(size=200)
    columns = {"y": y, "up": (y > 0) * 1, "x": x[:, 0], "z": x[:, 1], "group": group}
    return pd.DataFrame(columns | {"region": group % 8})


def mixed_of(data):
    return sm.MixedLM(data.y, sm.add_constant(data[["x", "z"]]), data.group).fit(reml=False)


def conditional_of(data):
    return ConditionalLogit(data.up, data[["x", "z"]], groups=data.group).fit(disp=0)


@pytest.mark.parametrize("fit", [mixed_of, conditional_of])
@pytest.mark.parametrize("ways", [1, 2])
def test_groups_are_the_units_of_clusters(fit, ways):
    data = panel()
    model = idm.from_statsmodels(quietly(lambda: fit(data)))
    labels = data.group if ways == 1 else (data.group, data.region)
    with pytest.raises(ValueError, match=f"units of this model are its {model.n} groups.*robust="):
        idm.infer(model, idm.parameters, clusters=labels)
    assert np.all(idm.infer(model, idm.parameters, robust=True).standard_error > 0)


def test_one_label_per_group_in_order_of_appearance():
    """Groups of MixedLM are sorted in statsmodels: the sums of their terms tell them apart."""
    data = panel()
    model = idm.from_statsmodels(quietly(lambda: mixed_of(data)))
    order = data.group.drop_duplicates()
    renamed = data.assign(group=pd.factorize(data.group)[0])
    other = idm.from_statsmodels(quietly(lambda: mixed_of(renamed)))
    assert not order.is_monotonic_increasing
    np.testing.assert_allclose(
        model.rows.terms(model.theta), other.rows.terms(other.theta), rtol=1e-4
    )
    labels = data.groupby("group", sort=False)["region"].first()
    found, expected = (
        idm.infer(m, idm.parameters, clusters=labels.to_numpy()) for m in (model, other)
    )
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-3)
    labeled = idm.infer(model, idm.parameters, clusters=labels)
    np.testing.assert_allclose(labeled.standard_error, found.standard_error)


def test_joins_of_groups_and_rows_name_what_works():
    data = panel()
    fits = [mixed_of, lambda d: sm.OLS(d.y, sm.add_constant(d[["x", "z"]])).fit()]
    a, b = (
        idm.infer(
            idm.from_statsmodels(quietly(lambda fit=fit: fit(data))),
            lambda p: p["x"],
            robust=True,
            influence=True,
        )
        for fit in fits
    )
    with pytest.raises(ValueError, match=r"bootstrap\(fit_both, data, psi, clusters="):
        a - b
    fit_both = lambda d: [quietly(lambda fit=fit: fit(d)) for fit in fits]
    gap = lambda both: both[0].params["x"] - both[1].params["x"]
    found = idm.bootstrap(
        fit_both, data, gap, clusters=data["group"], replicates=20, rng=0, jackknife=False
    )
    assert 0 < found.standard_error < a.standard_error + b.standard_error
