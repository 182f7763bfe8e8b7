"""Average effect of a dummy after a logit: cost of generality beside a formula by hand.

Run with ``python -m benchmarks.marginal_effect``. All in one run, n = 100 000 and d = 20 unless
said otherwise: the formula written out in NumPy, the question `average_comparison`, `infer` with
psi as a black box, statsmodels' `get_margeff`, and delicatessen's `delta_method` if that is
installed. The question is held against the formula in rounds, by medians.
"""

import argparse
from importlib.util import find_spec

import numpy as np
import statsmodels.api as sm
from scipy.special import expit

import implicit_delta as idm
from benchmarks.timing import Case, medians, timed

LIMIT, QUESTION_LIMIT = 10, 5  # times the formula by hand


class Problem:
    """A logit with one dummy, fitted."""

    def __init__(self, n, d, seed=0):
        rng = np.random.default_rng(seed)
        self.X = np.column_stack(
            [np.ones(n), rng.normal(size=(n, d - 2)), rng.integers(0, 2, size=n)]
        )
        y = rng.random(n) < expit(self.X @ rng.normal(scale=0.2, size=d))
        self.results = sm.Logit(y.astype(float), self.X).fit(disp=0)
        self.high, self.low = self.X.copy(), self.X.copy()
        self.high[:, -1], self.low[:, -1] = 1, 0
        self.model = idm.from_statsmodels(self.results)
        self.question = idm.average_comparison(d - 1)

    def effect(self, params):
        predict = self.results.model.predict
        return (predict(params, self.high) - predict(params, self.low)).mean()

    def by_hand(self):
        """Slopes of the logistic function, the information matrix, one solve."""
        X, beta = self.X, self.results.params
        p = expit(X @ beta)
        information = X.T @ ((p * (1 - p))[:, None] * X)
        p_high, p_low = expit(self.high @ beta), expit(self.low @ beta)
        gradient = (p_high * (1 - p_high)) @ self.high - (p_low * (1 - p_low)) @ self.low
        gradient /= len(X)
        return np.sqrt(gradient @ np.linalg.solve(information, gradient))

    def by_infer(self):
        model = idm.from_statsmodels(self.results)
        return idm.infer(model, self.effect).standard_error

    def by_question(self):
        model = idm.from_statsmodels(self.results)
        return idm.infer(model, self.question).standard_error

    def by_differences(self):
        """The same with a psi that cannot be traced, so that it is differentiated numerically."""
        model = idm.from_statsmodels(self.results)
        return idm.infer(model, lambda params: float(self.effect(params))).standard_error

    def by_statsmodels(self):
        # Fresh results: statsmodels keeps what it once computed.
        results = sm.Logit(self.results.model.endog, self.X).fit(
            start_params=self.results.params, disp=0
        )
        return timed(lambda: results.get_margeff(at="overall", dummy=True).margeff_se[-1])

    def by_delicatessen(self):
        from delicatessen import delta_method

        covariance = np.asarray(self.results.cov_params())
        variance = delta_method(self.results.params, lambda b: [self.effect(b)], covariance)
        return float(np.sqrt(np.squeeze(variance)))


def cases(n=100_000, d=20):
    problem = Problem(n, d)
    name = "average effect, n = 1e5, d = 20: psi "
    yield Case(name + "traced", 2, problem.by_infer, problem.by_hand, before=10.9, rounds=11)
    yield Case(name + "opaque", 10, problem.by_differences, problem.by_hand, before=42)
    yield Case(
        name + "average_comparison", 2, problem.by_question, problem.by_hand, before=5.3, rounds=11
    )


def main(n=100_000, d=20):
    problem = Problem(n, d)
    rows = {
        "by hand, in NumPy": timed(problem.by_hand, 7),
        "average_comparison": timed(problem.by_question, 7),
        "infer, psi traced": timed(problem.by_infer, 7),
        "infer, psi opaque": timed(problem.by_differences),
        "statsmodels get_margeff": problem.by_statsmodels(),
    }
    if find_spec("delicatessen") is not None:
        rows["delicatessen delta_method"] = timed(problem.by_delicatessen)
    unit = rows["by hand, in NumPy"][1]
    print(f"Average effect of a dummy after a logit, n = {n}, d = {d}")
    print(f"  {'':26} {'std. error':>14} {'seconds':>9} {'times by hand':>14}")
    for name, (error, seconds) in rows.items():
        print(f"  {name:26} {error:14.12f} {seconds:9.4f} {seconds / unit:14.1f}")
    ratio = rows["infer, psi traced"][1] / unit
    print(f"  limit: {LIMIT} times by hand; {'held' if ratio <= LIMIT else 'BROKEN'}")
    print_question(problem)


def print_question(problem):
    """Hold the question against the formula in rounds, with and without reading the results."""
    times = medians(
        {
            "by hand": problem.by_hand,
            "existing model": lambda: idm.infer(problem.model, problem.question),
            "from results": problem.by_question,
        }
    )
    for name in ("existing model", "from results"):
        ratio = times[name] / times["by hand"]
        held = "held" if ratio <= QUESTION_LIMIT else "BROKEN"
        print(f"  average_comparison, {name}: {ratio:.2f} times by hand (medians); {held}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=100_000)
    parser.add_argument("-d", type=int, default=20)
    arguments = parser.parse_args()
    main(arguments.n, arguments.d)
