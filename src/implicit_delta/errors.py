"""Errors and warnings, each with one root, and the texts for failures of numerical code.

`linalg` raises with numbers alone; the classmethods here name causes and remedies.
"""

from collections.abc import Sequence
from typing import Any

# No word of `damping=` here: it makes an unfinished or indefinite fit answer, with a standard error
# that is whatever the damping makes it (1425 for 2497 in one trial).
REMEDIES = (
    "A network whose training stopped early is taken as it is by `infer(model, psi)` without a "
    "method, if its likelihood is known: `Categorical()`, `Bernoulli()`, `Gaussian()` or "
    "`Poisson()`, with `outputs=` and `targets=` for batches of any make, and no function of your "
    "own. Otherwise finish the training with `polish(model)`, fit with a penalty (`l2=`), or use, "
    'for residuals, `Infinitesimal(curvature="ggn")`.'
)
OF_NETWORK = (
    "`infer(model, psi)` without a method takes a training as it stopped, with a standard error "
    "and a symmetric interval. A profile, a contour or a method with the Hessian needs a maximum: "
    "finish the training with `polish(model)`, with a penalty (`l2=`) if there is none."
)
OF_FUNCTION = (
    "Finish the fit with `polish(model)`, start it elsewhere, or fit with a penalty (`l2=`); for "
    'residuals, `Infinitesimal(curvature="ggn")` does not take second derivatives.'
)
MOST_NUMBERS = 3  # of parameters without names


class ImplicitDeltaError(Exception):
    """Root of all errors raised by this library.

    Attributes
    ----------
    finding : Finding or None
        What a check has found, as data; None of errors that are not raised by a check.
    """

    finding: Any = None


class ConvergenceError(ImplicitDeltaError):
    """An optimization or a linear solve did not finish, or the given point is not an optimum.

    Attributes
    ----------
    theta : array (d,) or None
        The best point of a search that has made all the calls that it may.
    """

    theta: Any = None

    @classmethod
    def unfinished_solve(
        cls, solver: object, iterations: int, column: int, low: float, high: float
    ) -> "ConvergenceError":
        """Report the bounds on the standard error of the worst column of a linear solve."""
        return cls(
            f"{solver!r} did not finish in {iterations} iterations: "
            f"{between(column, low, high)} Usual causes: badly "
            "scaled or nearly redundant parameters. Try `solver=cholesky` if a matrix of d x d "
            "fits in memory, a larger `max_iterations` or `rtol`, a `preconditioner`, or fit with "
            "a penalty (`l2=`)."
        )

    @classmethod
    def over_budget(cls, budget: float, needed: float, known: str) -> "ConvergenceError":
        """Report a budget of passes that does not reach, and what is known so far."""
        return cls(
            f"The budget of {budget:g} passes over the data does not reach: at least {needed:.4g} "
            f"are needed. {known[:1].upper()}{known[1:]} Give a larger `budget=`, or leave it out."
        )

    @classmethod
    def unfinished_root(cls, error: float, products: int) -> "ConvergenceError":
        """Report the relative error left in an inverse root times normal draws."""
        return cls(
            "Draws from the normal distribution around the parameters are still uncertain by "
            f"{error:.1g} of their length after {products} products with the curvature: it "
            "ranges over many orders of magnitude. A penalty (`l2=`) bounds it from below; "
            "`Infinitesimal()` needs no draws."
        )


def between(column: int, low: float, high: float) -> str:
    """Write bounds on the standard error of an evaluation."""
    return f"the standard error of evaluation {column} lies between {low:.4g} and {high:.4g}."


class NotAMaximumError(ImplicitDeltaError):
    """The log-likelihood is flat or curves upward in some direction at the given parameters.

    Parameters
    ----------
    message : str
        Fact, likely causes and remedies.
    curvature : float, optional
        Smallest curvature found of minus the log-likelihood.
    positions : sequence of int, optional
        The parameters that dominate a flat direction, if known.
    """

    def __init__(
        self, message: str, curvature: float = float("nan"), positions: Sequence[int] = ()
    ) -> None:
        super().__init__(message)
        self.curvature = curvature
        self.positions = tuple(map(int, positions))

    def __reduce__(self) -> tuple[type, tuple[str, float, tuple[int, ...]]]:
        """Keep the numbers when the error crosses a process boundary."""
        return type(self), (str(self), self.curvature, self.positions)

    def named(self, names: Sequence[str] | None) -> "NotAMaximumError":
        """Name the parameters that dominate a flat direction instead of counting them."""
        if names is None or not self.positions:
            return self
        return self.flat(self.curvature, self.positions, names)

    def of_own(self, names: Sequence[str], theta: Sequence[float]) -> "NotAMaximumError":
        """Advise on parameters with names of an own likelihood, of which some are redundant."""
        j = self.positions[-1] if self.positions else len(names) - 1
        fact = str(self.named(names)).split(" Usual causes:")[0]
        return type(self)(
            f"{fact} Usual causes: parameters that the likelihood knows only together, as a "
            "product or a sum, or that the data do not inform. Ask for what the data determine, "
            f"`infer(model, lambda th: ...)`; fix one, `model.fix({names[j]}={theta[j]:.3g})`; or "
            f"add what is known of it, `model + measurement({names[j]}=({theta[j]:.3g}, error))`.",
            self.curvature,
            self.positions,
        )

    @classmethod
    def saddle(cls, curvature: float) -> "NotAMaximumError":
        """Report a direction of negative curvature."""
        return SaddlePointError(
            "The log-likelihood is not at a strict maximum: its curvature along one direction is "
            f"{curvature:.1e}. Usual causes: training stopped early, redundant parameters. "
            f"{REMEDIES}",
            curvature,
        )

    @classmethod
    def flat(
        cls, curvature: float, positions: Sequence[int] = (), names: Sequence[str] | None = None
    ) -> "NotAMaximumError":
        """Report a direction of no curvature, and the parameters that dominate it if known."""
        plural = "s" if len(positions) > 1 else ""
        place = "" if names else f" at position{plural}"
        told = positions if names else positions[:MOST_NUMBERS]
        listed = ", ".join(names[j] if names else str(j) for j in told)
        listed += f" and {len(positions) - len(told)} more" * (len(told) < len(positions))
        where = f", which moves mostly the parameter{plural}{place} {listed}"
        return cls(
            "The log-likelihood has no strict maximum: it is flat, to working precision, along one "
            f"direction{where if positions else ''} (curvature {curvature:.1e}). Usual causes: "
            "redundant parameters (collinear columns, a column for every category beside the "
            "intercept, units that duplicate each other), parameters that the data do not inform, "
            "training stopped early. Ask for what the data determine (a prediction, a contrast), "
            "remove what is redundant, finish the training with `polish(model)`, or fit with a "
            "penalty (`l2=`). `Infinitesimal(damping=a)` shrinks the standard error: it is that "
            "of a ridge penalty `l2=a`.",
            curvature,
            positions,
        )

    @classmethod
    def rising(cls, slope: float) -> "NotAMaximumError":
        """Report a slope along a direction of no curvature."""
        return cls(
            "The log-likelihood has no maximum at the given parameters: along a direction in "
            f"which it is flat to second order it still rises, by {slope:.2g} for a step of one "
            "standard error of each parameter alone. Usual causes: training stopped early, a "
            "maximum that lies at infinity (separated classes). Finish the training with "
            "`polish(model)`, or fit with a penalty (`l2=`).",
            0.0,
        )

    @classmethod
    def not_finite(cls) -> "NotAMaximumError":
        """Report a curvature that overflowed or is not a number."""
        return cls(
            "The curvature of the log-likelihood is not finite at the given parameters. Usual "
            "causes: parameters at the edge of their domain (a variance of zero), overflow in the "
            "log-likelihood or in its second derivative. Try a parametrization without edges "
            "(a log scale), a penalty (`l2=`), or float64."
        )


class SaddlePointError(NotAMaximumError):
    """The log-likelihood curves upward in some direction at the given parameters."""

    def of_network(self) -> "SaddlePointError":
        """Advise on a network with a known likelihood, which `infer` takes as it stopped."""
        return self._advising(OF_NETWORK)

    def of_function(self) -> "SaddlePointError":
        """Advise on a log-likelihood or residuals that are a function of parameters."""
        return self._advising(OF_FUNCTION)

    def _advising(self, remedies: str) -> "SaddlePointError":
        text = str(self).removesuffix(REMEDIES) + remedies
        return type(self)(text, self.curvature, self.positions)


class EvaluationError(ImplicitDeltaError):
    """The evaluation psi returned something that has no standard error."""


class UnsupportedModelError(ImplicitDeltaError):
    """The model cannot be used as given, or not with the requested method."""


class ImplicitDeltaWarning(UserWarning):
    """Root of all warnings issued by this library."""


class DriftWarning(ImplicitDeltaWarning):
    """Training stopped short of the maximum by a noticeable part of a standard error."""


class DispersionWarning(ImplicitDeltaWarning):
    """The data vary more than the model has it, so that its standard errors are too small."""


class NonlinearityWarning(ImplicitDeltaWarning):
    """Psi bends noticeably within one standard error, so a symmetric interval is doubtful."""


class SmallSampleWarning(ImplicitDeltaWarning):
    """A robust variance rests on so few rows or clusters that its intervals are too short."""


class NotDeterministicWarning(ImplicitDeltaWarning):
    """The same parameters gave two different values."""


class ShrinkageWarning(ImplicitDeltaWarning):
    """A penalty has moved psi by a noticeable part of a standard error from the truth."""
