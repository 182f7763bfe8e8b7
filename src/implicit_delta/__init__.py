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

from implicit_delta.errors import (
    ConvergenceError,
    DispersionWarning,
    DriftWarning,
    EvaluationError,
    ImplicitDeltaError,
    ImplicitDeltaWarning,
    NonlinearityWarning,
    NotAMaximumError,
    NotDeterministicWarning,
    ShrinkageWarning,
    SmallSampleWarning,
    UnsupportedModelError,
)
from implicit_delta.estimate import Diagnostics, Estimate, Interval, join
from implicit_delta.evaluation import (
    Average,
    Replicated,
    Smoothed,
    Statistic,
    average_comparison,
    average_prediction,
    average_slope,
    datagrid,
    parameters,
    predictions,
)
from implicit_delta.inference.bootstrap import bootstrap
from implicit_delta.inference.compare import compare
from implicit_delta.inference.comparison import Comparison
from implicit_delta.inference.continued import averaged, continue_training
from implicit_delta.inference.goodness_of_fit import GoodnessOfFit, goodness_of_fit
from implicit_delta.inference.hac import HAC
from implicit_delta.inference.infer import infer
from implicit_delta.inference.likelihood_ratio import LikelihoodRatio, likelihood_ratio
from implicit_delta.inference.polish import Polished, polish
from implicit_delta.inference.profile.contour import contour
from implicit_delta.inference.profile.door import profile
from implicit_delta.inference.profile.joint_region import Contour
from implicit_delta.inference.profile.limit import Limit, limit
from implicit_delta.inference.profile.many import Profiles
from implicit_delta.inference.profile.result import Profile
from implicit_delta.inference.refit import refit
from implicit_delta.inference.summary import Summary
from implicit_delta.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, Poisson
from implicit_delta.methods.base import Method, Response
from implicit_delta.methods.bootstrap import Bootstrap
from implicit_delta.methods.finite_difference import FiniteDifference
from implicit_delta.methods.infinitesimal import Infinitesimal
from implicit_delta.methods.simulation import Simulation
from implicit_delta.methods.stochastic import StochasticFiniteDifference
from implicit_delta.models.base import FittedModel
from implicit_delta.models.combined import combine, measurement
from implicit_delta.models.compress import compress
from implicit_delta.models.draws import from_draws
from implicit_delta.models.equations import from_equations
from implicit_delta.models.jax import from_jax
from implicit_delta.models.loglik import from_loglik
from implicit_delta.models.residuals import from_residuals
from implicit_delta.models.sharded.units import on_shards
from implicit_delta.models.shards import from_shards
from implicit_delta.models.sklearn import from_sklearn
from implicit_delta.models.statsmodels import from_statsmodels
from implicit_delta.models.torch import from_torch
from implicit_delta.numerics.maximizers import (
    bayesian_optimization,
    cobyqa,
    lbfgs,
    nelder_mead,
    newton_krylov,
)
from implicit_delta.numerics.solvers import cholesky, conjugate_gradient

__version__ = "0.2.0.dev0"

__all__ = [
    "HAC",
    "Average",
    "Bernoulli",
    "Bootstrap",
    "Categorical",
    "Comparison",
    "Contour",
    "ConvergenceError",
    "Diagnostics",
    "DispersionWarning",
    "DriftWarning",
    "Estimate",
    "EvaluationError",
    "FiniteDifference",
    "FittedModel",
    "Gaussian",
    "GoodnessOfFit",
    "ImplicitDeltaError",
    "ImplicitDeltaWarning",
    "Infinitesimal",
    "Interval",
    "Likelihood",
    "LikelihoodRatio",
    "Limit",
    "Method",
    "NonlinearityWarning",
    "NotAMaximumError",
    "NotDeterministicWarning",
    "Poisson",
    "Polished",
    "Profile",
    "Profiles",
    "Replicated",
    "Response",
    "ShrinkageWarning",
    "Simulation",
    "SmallSampleWarning",
    "Smoothed",
    "Statistic",
    "StochasticFiniteDifference",
    "Summary",
    "UnsupportedModelError",
    "average_comparison",
    "average_prediction",
    "average_slope",
    "averaged",
    "bayesian_optimization",
    "bootstrap",
    "cholesky",
    "cobyqa",
    "combine",
    "compare",
    "compress",
    "conjugate_gradient",
    "continue_training",
    "contour",
    "datagrid",
    "from_draws",
    "from_equations",
    "from_jax",
    "from_loglik",
    "from_residuals",
    "from_shards",
    "from_sklearn",
    "from_statsmodels",
    "from_torch",
    "goodness_of_fit",
    "infer",
    "join",
    "lbfgs",
    "likelihood_ratio",
    "limit",
    "measurement",
    "nelder_mead",
    "newton_krylov",
    "on_shards",
    "parameters",
    "polish",
    "predictions",
    "profile",
    "refit",
]
