"""An honest error bar on anything you compute from a trained model.

Examples
--------
A normal distribution is fitted by maximum likelihood; what is the uncertainty of its upper 5 %
point?

>>> import numpy as np
>>> from scipy.stats import norm
>>> import implicit_delta as idm
>>> y = np.random.default_rng(0).normal(10.0, 2.0, size=100)
>>> model = idm.from_loglik(lambda th: norm.logpdf(y, th[0], np.exp(th[1])), start=[0.0, 0.0])
>>> estimate = idm.infer(model, lambda th: th[0] + 1.645 * np.exp(th[1]))
>>> round(estimate.value, 3), round(estimate.standard_error, 3)
(13.328, 0.295)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0.dev0"

# Where each public name is. It is loaded when first used: all take ten times as long as NumPy.
_HOMES = {
    "HAC": "inference.hac",
    "Average": "evaluation",
    "Bernoulli": "likelihoods",
    "Bootstrap": "methods.bootstrap",
    "Categorical": "likelihoods",
    "Comparison": "inference.comparison",
    "Contour": "inference.profile.contour",
    "ConvergenceError": "errors",
    "Diagnostics": "estimate",
    "DispersionWarning": "errors",
    "DriftWarning": "errors",
    "Estimate": "estimate",
    "EvaluationError": "errors",
    "FiniteDifference": "methods.finite_difference",
    "FittedModel": "models.model",
    "Gaussian": "likelihoods",
    "GoodnessOfFit": "inference.goodness_of_fit",
    "ImplicitDeltaError": "errors",
    "ImplicitDeltaWarning": "errors",
    "Infinitesimal": "methods.infinitesimal",
    "Interval": "estimate",
    "Likelihood": "likelihoods",
    "LikelihoodRatio": "inference.likelihood_ratio",
    "Limit": "inference.limits.limit",
    "Method": "methods.base",
    "NonlinearityWarning": "errors",
    "NotAMaximumError": "errors",
    "NotDeterministicWarning": "errors",
    "Poisson": "likelihoods",
    "Polished": "inference.polish",
    "Profile": "inference.profile.result",
    "Profiles": "inference.profile.result",
    "Replicated": "evaluation",
    "Response": "methods.base",
    "ShrinkageWarning": "errors",
    "Simulation": "methods.simulation",
    "SmallSampleWarning": "errors",
    "Smoothed": "evaluation",
    "Statistic": "evaluation",
    "StochasticFiniteDifference": "methods.stochastic",
    "Summary": "inference.summary",
    "UnsupportedModelError": "errors",
    "average_comparison": "evaluation",
    "average_prediction": "evaluation",
    "average_slope": "evaluation",
    "averaged": "inference.continued",
    "bootstrap": "inference.bootstrap",
    "cholesky": "linalg.solvers",
    "combine": "models.combined",
    "compare": "inference.compare",
    "compress": "models.compress",
    "conjugate_gradient": "linalg.solvers",
    "continue_training": "inference.continued",
    "contour": "inference.profile.contour",
    "datagrid": "evaluation",
    "from_equations": "models.equations",
    "from_estimates": "models.estimates",
    "from_jax": "models.jax",
    "from_loglik": "models.loglik",
    "from_residuals": "models.residuals",
    "from_shards": "models.shards",
    "from_sklearn": "models.sklearn",
    "from_statsmodels": "models.statsmodels",
    "from_torch": "models.torch",
    "goodness_of_fit": "inference.goodness_of_fit",
    "infer": "inference.infer",
    "join": "estimate",
    "lbfgs": "optimize",
    "likelihood_ratio": "inference.likelihood_ratio",
    "limit": "inference.limits.limit",
    "measurement": "models.combined",
    "nelder_mead": "optimize",
    "newton_krylov": "optimize",
    "on_shards": "models.sharded.units",
    "parameters": "evaluation",
    "polish": "inference.polish",
    "predictions": "evaluation",
    "profile": "inference.profile.profile",
    "refit": "inference.refit",
}
__all__ = list(_HOMES)

# For type checkers alone, which cannot follow the table; `X as X` exports X.
if TYPE_CHECKING:
    from implicit_delta.errors import ConvergenceError as ConvergenceError
    from implicit_delta.errors import DispersionWarning as DispersionWarning
    from implicit_delta.errors import DriftWarning as DriftWarning
    from implicit_delta.errors import EvaluationError as EvaluationError
    from implicit_delta.errors import ImplicitDeltaError as ImplicitDeltaError
    from implicit_delta.errors import ImplicitDeltaWarning as ImplicitDeltaWarning
    from implicit_delta.errors import NonlinearityWarning as NonlinearityWarning
    from implicit_delta.errors import NotAMaximumError as NotAMaximumError
    from implicit_delta.errors import NotDeterministicWarning as NotDeterministicWarning
    from implicit_delta.errors import ShrinkageWarning as ShrinkageWarning
    from implicit_delta.errors import SmallSampleWarning as SmallSampleWarning
    from implicit_delta.errors import UnsupportedModelError as UnsupportedModelError
    from implicit_delta.estimate import Diagnostics as Diagnostics
    from implicit_delta.estimate import Estimate as Estimate
    from implicit_delta.estimate import Interval as Interval
    from implicit_delta.estimate import join as join
    from implicit_delta.evaluation import Average as Average
    from implicit_delta.evaluation import Replicated as Replicated
    from implicit_delta.evaluation import Smoothed as Smoothed
    from implicit_delta.evaluation import Statistic as Statistic
    from implicit_delta.evaluation import average_comparison as average_comparison
    from implicit_delta.evaluation import average_prediction as average_prediction
    from implicit_delta.evaluation import average_slope as average_slope
    from implicit_delta.evaluation import datagrid as datagrid
    from implicit_delta.evaluation import parameters as parameters
    from implicit_delta.evaluation import predictions as predictions
    from implicit_delta.inference.bootstrap import bootstrap as bootstrap
    from implicit_delta.inference.compare import compare as compare
    from implicit_delta.inference.comparison import Comparison as Comparison
    from implicit_delta.inference.continued import averaged as averaged
    from implicit_delta.inference.continued import continue_training as continue_training
    from implicit_delta.inference.goodness_of_fit import GoodnessOfFit as GoodnessOfFit
    from implicit_delta.inference.goodness_of_fit import goodness_of_fit as goodness_of_fit
    from implicit_delta.inference.hac import HAC as HAC
    from implicit_delta.inference.infer import infer as infer
    from implicit_delta.inference.likelihood_ratio import LikelihoodRatio as LikelihoodRatio
    from implicit_delta.inference.likelihood_ratio import likelihood_ratio as likelihood_ratio
    from implicit_delta.inference.limits.limit import Limit as Limit
    from implicit_delta.inference.limits.limit import limit as limit
    from implicit_delta.inference.polish import Polished as Polished
    from implicit_delta.inference.polish import polish as polish
    from implicit_delta.inference.profile.contour import Contour as Contour
    from implicit_delta.inference.profile.contour import contour as contour
    from implicit_delta.inference.profile.profile import profile as profile
    from implicit_delta.inference.profile.result import Profile as Profile
    from implicit_delta.inference.profile.result import Profiles as Profiles
    from implicit_delta.inference.refit import refit as refit
    from implicit_delta.inference.summary import Summary as Summary
    from implicit_delta.likelihoods import Bernoulli as Bernoulli
    from implicit_delta.likelihoods import Categorical as Categorical
    from implicit_delta.likelihoods import Gaussian as Gaussian
    from implicit_delta.likelihoods import Likelihood as Likelihood
    from implicit_delta.likelihoods import Poisson as Poisson
    from implicit_delta.linalg.solvers import cholesky as cholesky
    from implicit_delta.linalg.solvers import conjugate_gradient as conjugate_gradient
    from implicit_delta.methods.base import Method as Method
    from implicit_delta.methods.base import Response as Response
    from implicit_delta.methods.bootstrap import Bootstrap as Bootstrap
    from implicit_delta.methods.finite_difference import FiniteDifference as FiniteDifference
    from implicit_delta.methods.infinitesimal import Infinitesimal as Infinitesimal
    from implicit_delta.methods.simulation import Simulation as Simulation
    from implicit_delta.methods.stochastic import (
        StochasticFiniteDifference as StochasticFiniteDifference,
    )
    from implicit_delta.models.combined import combine as combine
    from implicit_delta.models.combined import measurement as measurement
    from implicit_delta.models.compress import compress as compress
    from implicit_delta.models.equations import from_equations as from_equations
    from implicit_delta.models.estimates import from_estimates as from_estimates
    from implicit_delta.models.jax import from_jax as from_jax
    from implicit_delta.models.loglik import from_loglik as from_loglik
    from implicit_delta.models.model import FittedModel as FittedModel
    from implicit_delta.models.residuals import from_residuals as from_residuals
    from implicit_delta.models.sharded.units import on_shards as on_shards
    from implicit_delta.models.shards import from_shards as from_shards
    from implicit_delta.models.sklearn import from_sklearn as from_sklearn
    from implicit_delta.models.statsmodels import from_statsmodels as from_statsmodels
    from implicit_delta.models.torch import from_torch as from_torch
    from implicit_delta.optimize import lbfgs as lbfgs
    from implicit_delta.optimize import nelder_mead as nelder_mead
    from implicit_delta.optimize import newton_krylov as newton_krylov
else:

    def __getattr__(name: str) -> Any:
        """Load a public name or, as `implicit_delta.models`, a room."""
        if name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        if name in {home.partition(".")[0] for home in _HOMES.values()}:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*__all__, "__version__"])
