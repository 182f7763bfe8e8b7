"""Wrong names and dictionaries, fixed parameters and comparisons: clear errors."""

import numpy as np
import pytest
from scipy.stats import norm

import implicit_delta as idm

RNG = np.random.default_rng(3)
X = RNG.normal(size=60)
Y = 1.0 + 0.4 * X + RNG.normal(size=60)
START = {"mu": 0.0, "b": 0.0, "ls": 0.0}


def loglik(th):
    return norm.logpdf(Y, th["mu"] + th["b"] * X, np.exp(th["ls"]))


MODEL = idm.from_loglik(loglik, start=START, bounds={"ls": (-5, 5)})


def built(**options):
    return lambda: idm.from_loglik(loglik, **{"start": START, **options})


REFUSED = {
    "empty": (built(start={}), ValueError, "empty dictionary"),
    "text": (built(start={"mu": "x"}), TypeError, r"start\['mu'\]"),
    "none": (built(start={"mu": None}), TypeError, r"start\['mu'\]"),
    "complex": (built(start={"mu": 1j}), TypeError, "must be a number"),
    "nan": (built(start={"mu": np.nan, "b": 0.0}), ValueError, r"start\['mu'\] is nan"),
    "infinite": (built(start={"b": [0.0, np.inf]}), ValueError, "not finite"),
    "nested": (built(start={"mu": {"a": 1.0}}), TypeError, "one flat dictionary"),
    "ragged": (built(start={"mu": [[1.0], [1.0, 2.0]]}), TypeError, "array of numbers"),
    "empty array": (built(start={"mu": []}), TypeError, "must be a number"),
    "a number for a name": (built(start={1: 2.0}), TypeError, "names of parameters are strings"),
    "no name": (built(start={"": 2.0}), ValueError, "no name"),
    "twice": (built(start=[0, 0, 0], names=["a", "a", "b"]), ValueError, "'a' is there twice"),
    "twice by an array": (
        built(start={"a": np.zeros(2), "a[0]": 1.0}), ValueError, "there twice",
    ),
    "other names": (built(names=["x", "y", "z"]), ValueError, "leave one of the two out"),
    "too few names": (built(start=[0, 0, 0], names=["a"]), ValueError, "1 names"),
    "a set of names": (built(start=[0, 0, 0], names={"a", "b", "c"}), TypeError, "names is a set"),
    "theta and start": (built(theta=START), ValueError, "and not both"),
    "unknown in the likelihood": (
        lambda: idm.from_loglik(lambda th: Y - th.Mu, start=START),
        AttributeError,
        "Did you mean 'mu'",
    ),
    "unknown item": (
        lambda: idm.from_loglik(lambda th: Y - th["mus"], start=START), KeyError, "mean 'mu'",
    ),
    "unknown in a list": (
        lambda: idm.infer(MODEL, lambda th: th[["mu", "c"]]), KeyError, "'c' is no parameter",
    ),
    "unknown psi": (lambda: idm.infer(MODEL, "Mu"), idm.EvaluationError, "Did you mean 'mu'"),
    "unknown in psi": (lambda: idm.infer(MODEL, ["b", "q"]), idm.EvaluationError, "'q' is no"),
    "psi twice": (lambda: idm.infer(MODEL, ["b", "b"]), idm.EvaluationError, "twice"),
    "profile of nothing": (lambda: idm.profile(MODEL, "B2"), idm.EvaluationError, "is no param"),
    "an attribute of arrays": (
        lambda: idm.from_loglik(lambda th: Y - th.mean, start={"mean": 0.0}),
        AttributeError,
        r"th\['mean'\]",
    ),
    "the transpose": (
        lambda: idm.from_loglik(lambda th: Y - th.T, start={"T": 0.0}), AttributeError, "th.'T'.",
    ),
    "unknown bound": (built(bounds={"lls": (0, 1)}), ValueError, "Did you mean 'ls'"),
    "bounds exclude the start": (
        built(bounds={"ls": (1, 2)}), ValueError, r"ls at 0, outside of its bounds \(1, 2\)",
    ),
    "no pair": (built(bounds={"ls": 3}), TypeError, "must be a pair"),
    "bounds crossed": (built(bounds={"ls": (2, -2)}), ValueError, "lower one"),
    "fix nothing": (lambda: MODEL.fix(), ValueError, "Give a parameter to fix"),
    "fix all": (lambda: MODEL.fix(mu=0, b=0, ls=0), ValueError, "leaves nothing to fit"),
    "fix in two steps": (
        lambda: MODEL.fix(mu=0).fix(b=0).fix(ls=0), ValueError, "leaves nothing to fit",
    ),
    "fix unknown": (lambda: MODEL.fix(bb=1.0), ValueError, "Did you mean 'b'"),
    "fix position": (lambda: MODEL.fix({3: 1.0}), ValueError, "Positions are 0 to 2"),
    "fix a flag": (lambda: MODEL.fix({True: 1.0}), ValueError, "is no parameter"),
    "fix a list": (lambda: MODEL.fix([1.0]), TypeError, "not a list"),
    "fix text": (lambda: MODEL.fix(b="a"), TypeError, "give a number"),
    "fix nan": (lambda: MODEL.fix(b=np.nan), ValueError, "not finite"),
    "fix two numbers": (lambda: MODEL.fix(b=[1.0, 2.0]), TypeError, "give a number"),
    "fix twice": (lambda: MODEL.fix({1: 0.0, "b": 1.0}), ValueError, "there twice"),
    "fix beyond a bound": (lambda: MODEL.fix(ls=7.0), ValueError, "its bounds say ls <= 5"),
    "fix where nothing is": (
        lambda: idm.from_loglik(
            lambda th: norm.logpdf(Y, th.mu, 1.0) + np.log(th.p) - th.p, start={"mu": 0.0, "p": 1.0}
        ).fix(p=-1.0),
        ValueError,
        "with p = -1 fixed",
    ),
    "release what is free": (lambda: MODEL.fix(b=0).release("mu"), ValueError, "fixed are b"),
    "release nothing": (lambda: MODEL.release("b"), ValueError, "No parameter"),
    "psi of what is fixed": (
        lambda: idm.infer(MODEL.fix(b=0.0), "b"), idm.EvaluationError, "equality fixes it",
    ),
    "fix equations": (
        lambda: idm.from_equations(lambda th: Y - th[0], start=[0.0]).fix({0: 1.0}),
        idm.UnsupportedModelError,
        "from_loglik",
    ),
    "the larger first": (
        lambda: idm.likelihood_ratio(MODEL, MODEL.fix(b=0.0)), ValueError, "smaller one first",
    ),
    "the same twice": (lambda: idm.likelihood_ratio(MODEL, MODEL), ValueError, "same number"),
    "not nested": (
        lambda: idm.likelihood_ratio(MODEL.fix(b=0.0, mu=0.9), MODEL.fix(b=0.5)),
        ValueError,
        "not nested",
    ),
    "other rows": (
        lambda: idm.likelihood_ratio(_mean(Y[:40]), MODEL), ValueError, "40 and 60 rows",
    ),
    "other weights": (
        lambda: idm.likelihood_ratio(_mean(Y, weights=np.full(60, 2.0)), MODEL),
        ValueError,
        "other weights",
    ),
    "penalized": (
        lambda: idm.likelihood_ratio(_mean(Y, l2=1.0), MODEL),
        idm.UnsupportedModelError,
        "penalized",
    ),
    "sampling weights": (
        lambda: idm.likelihood_ratio(
            _mean(Y, weights=np.full(60, 2.0), weight_kind="sampling"), MODEL
        ),
        idm.UnsupportedModelError,
        "sampling weights",
    ),
    "another kind": (
        lambda: idm.likelihood_ratio(idm.from_residuals(lambda m: Y - m[0], start=[0.0]), MODEL),
        ValueError,
        "from_residuals",
    ),
    "a smaller model that is better": (
        lambda: idm.likelihood_ratio(
            idm.from_loglik(lambda th: norm.logpdf(Y, th[0], 1.0), start=[0.0]),
            idm.from_loglik(lambda th: norm.logpdf(Y, th[0] + th[1] * X, 3.0), start=[0.0, 0.0]),
        ),
        ValueError,
        "smaller model is higher",
    ),
    "not at its maximum": (
        lambda: idm.likelihood_ratio(
            MODEL.fix(b=0.0), idm.from_loglik(loglik, theta={"mu": 1.3, "b": 0.3, "ls": 0.0})
        ),
        idm.ConvergenceError,
        "not at its maximum",
    ),
    "not a model": (lambda: idm.likelihood_ratio(1.0, MODEL), TypeError, "float"),
    "starts without start": (
        lambda: idm.from_loglik(loglik, starts=5), ValueError, "give that too",
    ),
    "starts with theta": (built(start=None, theta=START, starts=5), ValueError, "not both"),
    "no starts": (built(start=None, starts=[]), ValueError, "empty list"),
    "starts of nothing": (built(starts=0), ValueError, "at least one"),
    "starts that differ": (
        built(starts=[{"mu": 0.0, "c": 1.0, "ls": 0.0}]), ValueError, "has the names",
    ),
    "starts too short": (built(starts=[[0.0, 1.0]]), ValueError, "3 finite numbers"),
}  # fmt: skip


def _mean(y, **options):
    return idm.from_loglik(
        lambda th: norm.logpdf(y, th.mu, np.exp(th.ls)), start={"mu": 1.0, "ls": 0.0}, **options
    )


@pytest.mark.parametrize("attack", REFUSED)
def test_refused(attack):
    call, error, words = REFUSED[attack]
    with pytest.raises(error, match=words):
        call()
