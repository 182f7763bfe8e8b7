"""From statsmodels results to a fitted model."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from scipy.optimize import LinearConstraint

from implicit_delta.core.labels import NamedColumn
from implicit_delta.core.optional import optional
from implicit_delta.core.types import Array, WeightKind
from implicit_delta.errors import UnsupportedModelError
from implicit_delta.models.constrained_fit import checked_under_constraints
from implicit_delta.models.constraints import constraints_of
from implicit_delta.models.estimates import from_estimates
from implicit_delta.models.facts import BY_LIBRARY, OTHER_FIT, Facts, Host
from implicit_delta.models.foreign import FIT_AGAIN, has_estimates, refuse_foreign
from implicit_delta.models.glm.language import HostLanguage
from implicit_delta.models.glm.likelihood import OutputLikelihood
from implicit_delta.models.glm.rows import NO_OUTPUTS, check_coefficients, host_rows
from implicit_delta.models.model import FittedModel
from implicit_delta.models.penalty import Penalty, Ridge
from implicit_delta.models.printing import range_text
from implicit_delta.models.space import Space
from implicit_delta.models.statsmodels.claims import claim_of, degrees_of_freedom
from implicit_delta.models.statsmodels.estimated import estimated, is_estimated
from implicit_delta.models.statsmodels.prediction import predictor_of
from implicit_delta.models.statsmodels.refusals import unsupported
from implicit_delta.models.statsmodels.table import (
    PENALIZED,
    SUPPORTED,
    Builder,
    host_curvature,
    numerical,
)
from implicit_delta.models.statsmodels.watch import Watch
from implicit_delta.models.traced_series import LikeParams
from implicit_delta.models.weights import Weights, observation_weights


def from_statsmodels(
    results: Any,
    *,
    alpha: float | Sequence[float] | Array | None = None,
    observed: bool | None = None,
    weight_kind: WeightKind = "frequency",
) -> FittedModel:
    r"""Make a fitted model of statsmodels results.

    Psi receives the parameters as ``results.params`` has them: a pandas Series (a DataFrame for
    `MNLogit`) if the data were pandas or a formula, and an array otherwise. They predict:
    ``params.predict(frame)`` reads a table as the fit did, through its formula if it has one.
    `average_comparison` and its like ask the common questions in one line.

    ``infer(from_statsmodels(results), parameters)`` has the standard errors ``results.bse``,
    whatever the `cov_type` of the fit (`model.facts.host.covariance` has it if it is not the
    inverse information), and the degrees of freedom of the fit, if that has `use_t`.
    The one exception is ``PHReg(ties="efron").fit(groups=...)``, whose score residuals are
    Breslow's in statsmodels and Efron's here.
    ``robust=True`` has those of ``cov_type="HC0"`` instead, and ``clusters=`` those of
    ``cov_type="cluster"`` with ``use_correction=False``.

    Parameters
    ----------
    results : statsmodels results
        Of OLS, WLS, GLS, GLM (all families and links, frequency and variance weights, offset and
        exposure), Logit, Probit, MNLogit, Poisson, NegativeBinomial (NB1, NB2, geometric),
        NegativeBinomialP, GeneralizedPoisson, the zero-inflated, truncated and hurdle counts,
        OrderedModel, ConditionalLogit, ConditionalPoisson, PHReg, MixedLM
        (``fit(reml=False)``), ARIMA, SARIMAX and other state-space models, Markov switching, or
        any GenericLikelihoodModel (a Tobit, say); made from arrays or by a formula; of `fit` or,
        where there is one, `fit_constrained`. GEE, QuantReg, RLM, IV2SLS and MixedLM by REML have
        no likelihood by rows, and come in with the covariance of the fit; see `from_estimates`.
    alpha : float or (d,) array, optional
        The penalty of ``fit_regularized(alpha=..., L1_wt=0)``, on statsmodels' scale. Results of
        `fit_regularized` keep no record of it, so it has to be given; a wrong one shows as drift.
    observed : bool, optional
        For a GLM with another than the canonical link: whether the default method takes the
        observed information (minus the Hessian, ``curvature="hessian"``) or the expected one
        (``"ggn"``). By default the one that ``results.bse`` has: expected after IRLS, observed
        after another optimizer. Robust errors rest on the observed one, as in statsmodels.
    weight_kind : {"frequency", "sampling"}
        Meaning of the `freq_weights` of a GLM: repetitions of rows, as statsmodels has it; or
        survey weights, with the design-based variance by default. Precisions are `var_weights`.

    Returns
    -------
    FittedModel
        Of GEE, QuantReg, RLM, IV2SLS and REML one of estimates, which has no rows.

    Notes
    -----
    The scale of OLS, WLS, GLS and GLM is plugged in as statsmodels estimates it. The rows of GLS
    are the whitened ones, which is what robust errors then refer to. Frequency weights of a GLM
    count repetitions in robust errors too, which equals repeating the rows. Variance weights
    (`var_weights`, the weights of WLS) are precisions and part of the likelihood: each row is one
    observation.

    Robust errors of PHReg are made of score residuals: those of ``coxph(robust=TRUE)`` in R. A term
    of MixedLM and of the conditional models is that of a group (in order of appearance; without
    variation it has none), so robust errors are clustered by it. A term of a time series is that of
    a time given the past, so robust errors allow for another distribution, not another dynamics.

    The covariance of a robust fit is a claim of that fit: it is lost when the model moves
    (`polish`, `model.at`) or is reweighted. An average over the training rows is made of the rows,
    with the clusters of the fit.

    Examples
    --------
    >>> import statsmodels.api as sm
    >>> import implicit_delta as idm
    >>> x = np.arange(12.0)
    >>> y = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1])
    >>> res = sm.Logit(y, sm.add_constant(x)).fit(disp=0)
    >>> half = idm.infer(idm.from_statsmodels(res), lambda params: -params[0] / params[1])
    >>> print(f"{half.value:.2f} +- {half.standard_error:.2f}")
    5.50 +- 2.00
    """
    if has_estimates(results):
        return from_estimates(results)
    refuse_foreign(results, "from_statsmodels")
    optional("statsmodels", "from_statsmodels")
    bare = getattr(results, "_results", results)
    if not hasattr(bare, "model") or not hasattr(bare, "params"):
        fits = hasattr(results, "fit") and hasattr(results, "endog_names")
        raise TypeError(
            f"from_statsmodels needs the results of a fit, not {type(results).__name__}"
            f"{': `from_statsmodels(model.fit())`.' if fits else f'. {FIT_AGAIN}'}"
        )
    _refuse_other_fits(bare, alpha)
    if is_estimated(bare, _class_of(bare.model)):
        _counts(None, len(bare.model.endog), weight_kind)
        return estimated(
            results, _names(bare, results.params), _rows(bare.model, len(bare.model.endog))
        )
    build = _builder(bare)
    theta = np.array(bare.params, dtype=np.float64).ravel(order="F")
    check_coefficients(theta, "statsmodels")
    penalty = _penalty(alpha, theta.size)
    built = build(bare, theta, penalty)
    rows = host_rows(built.likelihood, theta, "statsmodels")
    weights = _counts(built.counts, rows.n, weight_kind)
    curvature = host_curvature(bare, built.likelihood, weights.values)
    claimed = None
    if penalty is None and weight_kind != "sampling":
        claimed = claim_of(bare, rows.n)
    if observed is not None:
        curvature = "hessian" if observed else "ggn"
    names, predictor = _names(bare, results.params), predictor_of(bare)
    host = Host(
        labels=None if built.grouped else _rows(bare.model, rows.n),
        grouped=built.grouped,
        response=NamedColumn.of(getattr(bare.model.data, "orig_endog", None)),
        covariance=claimed,
        predictor=predictor,
        scale_rule="unbiased" if built.scaled else None,
        drift_causes=OTHER_FIT,
    )
    df = built.df if penalty is not None else degrees_of_freedom(bare, claimed is not None)
    likelihood = repr(built.likelihood)
    facts = Facts(
        BY_LIBRARY,
        host,
        df,
        no_outputs=NO_OUTPUTS.format(likelihood),
        source="from_statsmodels",
        notes={"likelihood": likelihood, **_precisions(bare.model)},
        curvature=curvature,
    )
    language = HostLanguage(
        LikeParams(results.params, predictor),
        Watch(bare.model, theta, ADVICE if predictor is None else PREDICT),
        linear=isinstance(built.likelihood, OutputLikelihood),
    )
    model = FittedModel(
        theta=theta,
        rows=rows,
        weights=weights,
        penalty=Penalty((Ridge(np.broadcast_to(built.ridge, theta.shape)),)),
        space=Space(
            names=names,
            constraints=constraints_of(None, _equalities(bare), theta, names),
            language=language,
        ),
        facts=facts,
    )
    return checked_under_constraints(model)


def _equalities(results: Any) -> list[LinearConstraint]:
    """Take over the linear constraints of `fit_constrained`."""
    given = getattr(results, "constraints", None)
    if given is None:
        return []
    limits = np.ravel(given.constants)
    return [LinearConstraint(given.coefs, limits, limits)]


def _counts(given: Any, n: int, kind: WeightKind) -> Weights:
    """Check the frequency weights of a GLM, and their kind."""
    if kind == "precision" or (kind != "frequency" and given is None):
        raise ValueError(
            f"weight_kind={kind!r} does not fit: it is about the freq_weights of a GLM, which "
            "are repetitions or sampling weights. Fit precisions as var_weights of a GLM, or by "
            "WLS: then they are part of the likelihood."
        )
    return observation_weights(given, n, kind, "freq_weights")


def _precisions(model: Any) -> dict[str, str]:
    """Describe the weights that are part of the likelihood."""
    kind = type(model).__name__
    weights = getattr(model, "weights" if kind == "WLS" else "var_weights", None)
    if weights is None or np.all(np.asarray(weights) == 1):
        return {}
    return {"precisions": f"{range_text(np.asarray(weights))} (part of the likelihood)"}


def _builder(results: Any) -> Builder:
    from statsmodels.base.model import GenericLikelihoodModel

    model = results.model
    known = SUPPORTED.get(_class_of(model))
    if known is not None:
        return known
    if isinstance(model, GenericLikelihoodModel):
        return numerical
    raise unsupported(results)


def _class_of(model: Any) -> str:
    kind = type(model)
    return f"{kind.__module__.removeprefix('statsmodels.')}.{kind.__qualname__}"


def _refuse_other_fits(results: Any, alpha: Any) -> None:
    """Refuse results that are no maximum of a likelihood with at most a known ridge penalty."""
    kind, model = type(results).__name__, type(results.model).__name__
    if getattr(results.model, "endog", None) is None:
        raise UnsupportedModelError(
            "These results have no data: `remove_data()` or `save(remove_data=True)` took them "
            "away. Fit the model again."
        )
    if kind.startswith("L1") or getattr(results, "regularized", False):
        _refuse_lasso(results)
    if getattr(results.model, "fixed_params", None) or getattr(results, "fixed_params", None):
        raise UnsupportedModelError(
            f"Some parameters of {model} were held fixed. Give the likelihood of the others to "
            "`from_loglik`."
        )
    _check_alpha(results, alpha, penalized=kind == "RegularizedResults", model=model)


def _check_alpha(results: Any, alpha: Any, *, penalized: bool, model: str) -> None:
    if not penalized and alpha is not None:
        raise ValueError("alpha= belongs to results of fit_regularized; these have no penalty.")
    if not penalized:
        return
    if np.any(np.asarray(results.params) == 0.0):
        _refuse_lasso(results)
    if alpha is None or model not in PENALIZED:
        raise UnsupportedModelError(
            f"These results of {model}.fit_regularized were fitted with a penalty, of which "
            "statsmodels keeps no record, and without it every standard error would be wrong. "
            "Give it, `from_statsmodels(results, alpha=...)`, if L1_wt was 0. For another L1_wt "
            f"the maximum has corners. {FIT_AGAIN}"
        )


def _refuse_lasso(results: Any) -> NoReturn:
    model = type(results.model).__name__
    linear = model in PENALIZED
    other = "fit_regularized" if linear else "GLM(...).fit_regularized"
    raise UnsupportedModelError(
        f"These results of {model} were fitted with an L1 penalty, whose maximum has a corner "
        f"and no curvature, or refitted after one. Use {other}(L1_wt=0, alpha=...). "
        f"{FIT_AGAIN}"
    )


PREDICT = "lambda params: params.predict(new).mean()"
ADVICE = "lambda params: results.model.predict(params, X).mean()"


def _penalty(alpha: Any, d: int) -> Array | None:
    if alpha is None:
        return None
    penalty = np.broadcast_to(np.asarray(alpha, dtype=np.float64), (d,))
    if not np.all(np.isfinite(penalty)) or np.any(penalty < 0):
        raise ValueError(f"alpha must be finite and not negative, not {alpha!r}.")
    return penalty


def _rows(model: Any, n: int) -> Any:
    """Label the rows, unless the observations are groups of them."""
    labels = getattr(model.data, "row_labels", None)
    return labels if labels is not None and len(labels) == n else None


def _names(results: Any, params: Any) -> tuple[str, ...] | None:
    """Label the parameters as the user or statsmodels does."""
    names = list(getattr(results.model, "exog_names", None) or [])
    if getattr(params, "ndim", 1) == 2:
        labels = list(getattr(results.model, "_ynames_map", {}).values())[1:]
        return tuple(f"{label}:{name}" for label in labels for name in names)
    if len(names) != len(params):  # of series and mixed models, beyond the regressors
        data = results.model.data
        names = list(getattr(results.model, "param_names", None) or data.param_names or [])
    names = list(params.index) if hasattr(params, "index") else names
    return tuple(map(str, names)) if len(names) == len(params) else None
