"""Standard errors in small samples: few rows, leverage, few clusters, penalties, ratios."""

from functools import partial

import numpy as np
from scipy.special import expit
from scipy.stats import poisson

import implicit_delta as idm
from experiments.coverage.study import Outcome, Study, asked, profiled


def inferred(model, psi, truth, level, **options):
    """Ask for one estimate, with options."""
    return asked(lambda: idm.infer(model, psi, **options), truth, level)


def least_squares(X, y):
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    return idm.from_residuals(lambda b: y - X @ b, beta, jacobian=lambda b: -X)


def logit(X, y, l2=0.0):
    return idm.from_loglik(
        lambda b: y * (X @ b) - np.logaddexp(0, X @ b),
        start=np.zeros(X.shape[1]),
        score=lambda b: (y - expit(X @ b))[:, None] * X,
        l2=l2,
    )


# Few rows, and rows of high leverage


def line(rng, level, n):
    x = rng.normal(size=n)
    X, y = np.column_stack([np.ones(n), x]), 1 + 2 * x + rng.normal(size=n)
    model, slope = least_squares(X, y), lambda b: b[1]
    return {
        "default": inferred(model, slope, 2.0, level),
        "normal quantiles": inferred(model, slope, 2.0, level, df=np.inf),
        'robust="HC3"': inferred(model, slope, 2.0, level, robust="HC3"),
    }


def leverage(rng, level, n=30):
    """A lognormal regressor, and noise that grows with it."""
    x = np.exp(rng.normal(size=n))
    X, y = np.column_stack([np.ones(n), x]), 1 + 2 * x + x * rng.normal(size=n)
    model, slope = least_squares(X, y), lambda b: b[1]
    kinds = {"robust=True": True, **{f'robust="{k}"': k for k in ("HC1", "HC2", "HC3")}}
    return {
        name: inferred(model, slope, 2.0, level, robust=robust) for name, robust in kinds.items()
    }


# Few clusters


def clustered(rng, level, groups, between):
    """Ten rows a cluster with a common error; the regressor varies between or within clusters."""
    labels = np.repeat(np.arange(groups), 10)
    x = rng.normal(size=groups)[labels] if between else rng.normal(size=labels.size)
    y = 1 + 2 * x + rng.normal(size=groups)[labels] + rng.normal(size=labels.size)
    model, slope = least_squares(np.column_stack([np.ones(labels.size), x]), y), lambda b: b[1]
    options = {"clusters": labels}
    return {
        "clusters=": inferred(model, slope, 2.0, level, **options),
        'robust="CR1S"': inferred(model, slope, 2.0, level, robust="CR1S", **options),
        'robust="CR2"': inferred(model, slope, 2.0, level, robust="CR2", **options),
    }


# A wrong model: negative binomial counts under a Poisson likelihood


def overdispersed(rng, level, n):
    import statsmodels.api as sm

    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    mean = np.exp(X @ [0.5, 0.5])
    y = poisson.rvs(mean * rng.gamma(1.0, 1.0, size=n), random_state=rng)
    model, slope = idm.from_statsmodels(sm.Poisson(y, X).fit(disp=0)), lambda b: b[1]
    return {
        "default": inferred(model, slope, 0.5, level),
        "robust=True": inferred(model, slope, 0.5, level, robust=True),
        'robust="HC3"': inferred(model, slope, 0.5, level, robust="HC3"),
    }


# Penalties


def ridge_logit(rng, level, l2, n=400):
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = (rng.random(n) < expit(X @ [0.3, 1.0, -0.5])).astype(float)
    model, slope = logit(X, y, l2), lambda b: b[1]
    return {
        "default": inferred(model, slope, 1.0, level),
        "debias=True": inferred(model, slope, 1.0, level, debias=True),
    }


# Ratios


def median_dose(rng, level, n, center=1.0):
    X = np.column_stack([np.ones(n), np.linspace(-2, 2, n)])
    y = (rng.random(n) < expit(X @ [center, 1.0])).astype(float)
    model, psi = logit(X, y), lambda b: -b[0] / b[1]
    return {
        "default": inferred(model, psi, -center, level),
        "profile": profiled(lambda: idm.profile(model, psi, level), -center, level),
    }


def poisson_ratio(rng, level, n):
    """Ratio of two rates that are about 2 and 1."""
    group = np.arange(n) % 2
    y = rng.poisson(np.where(group == 1, 2.0, 1.0))
    counts = [y[group == g].sum() for g in (0, 1)]
    if 0 in counts:
        return {"default": Outcome(covered=False, refused=True)}
    model = idm.from_loglik(
        lambda b: y * (b[0] + b[1] * group) - np.exp(b[0] + b[1] * group),
        start=[np.log(y.mean()), 0.0],
        score=lambda b: (
            (y - np.exp(b[0] + b[1] * group))[:, None] * np.column_stack([np.ones(n), group])
        ),
    )
    ratio = lambda b: np.exp(b[1])
    return {
        "default": inferred(model, ratio, 2.0, level),
        "profile": profiled(lambda: idm.profile(model, ratio, level), 2.0, level),
    }


STUDIES = (
    *(Study("slope of a line", n, partial(line, n=n)) for n in (10, 12, 30)),
    Study("slope, lognormal leverage", 30, leverage),
    *(
        Study(f"{groups} clusters, regressor {where}", 10 * groups,
              partial(clustered, groups=groups, between=where == "between"))
        for groups in (5, 10, 30)
        for where in ("within", "between")
    ),
    *(Study("negative binomial under Poisson", n, partial(overdispersed, n=n)) for n in (60, 200)),
    *(Study(f"ridge logit, l2 = {l2:g}", 400, partial(ridge_logit, l2=l2)) for l2 in (1.0, 20.0)),
    *(Study("median dose", n, partial(median_dose, n=n), replications=1000) for n in (60, 200)),
    *(Study("ratio of two Poisson rates", n, partial(poisson_ratio, n=n), replications=1000)
      for n in (20, 60)),
)  # fmt: skip
