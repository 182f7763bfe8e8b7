"""Demo: the last launch of Challenger, with an error bar.

Run by ``python -m implicit_delta``, and told with its pictures in the gallery of the site.
Data: Dalal, Fowlkes and Hoadley (1989), JASA 84, 945-957.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from implicit_delta.estimate import Estimate
from implicit_delta.estimate.axes import new_axes
from implicit_delta.evaluation import parameters
from implicit_delta.inference.infer import infer
from implicit_delta.models.loglik import from_loglik
from implicit_delta.models.model import FittedModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEMPERATURE = np.array(
    [66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58]
)
DAMAGED = np.array([0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1])


def log_odds(theta: Any, temperature: Any) -> Any:
    """Log-odds of damage, linear in the temperature."""
    return theta[0] + theta[1] * (temperature - 70)


def loglik(theta: Any) -> Any:
    """Log-likelihood, one value per flight."""
    return DAMAGED * log_odds(theta, TEMPERATURE) - np.logaddexp(0, log_odds(theta, TEMPERATURE))


def fit() -> FittedModel:
    """Fit the logistic regression."""
    return from_loglik(loglik, start=[0, 0], names=["at 70 F", "per degree"])


def damage(model: FittedModel) -> Estimate:
    """Estimate the log-odds of damage at the forecast of 31 F and at 70 F."""

    def psi(theta: Any) -> Any:
        return log_odds(theta, np.array([31, 70]))

    return infer(model, psi, names=["log-odds at 31 F", "log-odds at 70 F"])


def probability(answers: Estimate) -> str:
    """Describe the probability of damage at 31 F, with its interval."""
    low, high = expit(answers.contrast([1, 0]).confidence_interval(0.95))
    value = expit(np.asarray(answers.value)[0])
    return (
        f"Probability of damage at 31 F: {value:.4f}, 95 % interval {float(low):.3f} to "
        f"{float(high):.4f}"
    )


def draw(model: FittedModel, ax: Axes | None = None) -> Axes:
    """Draw the fitted curve, with an interval at each temperature and a band for all of it."""
    grid = np.linspace(30, 85, 111)
    curve = infer(model, lambda theta: log_odds(theta, grid))
    ax = new_axes(width=7.0, height=4.4) if ax is None else ax
    low, high = expit(curve.confidence_interval(simultaneous=True))
    ax.fill_between(grid, low, high, color="C0", alpha=0.12, lw=0, label="95 % band, simultaneous")
    low, high = expit(curve.confidence_interval())
    ax.fill_between(grid, low, high, color="C0", alpha=0.25, lw=0, label="95 % interval, pointwise")
    ax.plot(grid, expit(curve.value), color="C0", label="fitted probability of damage")
    ax.plot(TEMPERATURE, DAMAGED, "o", color="black", ms=4, alpha=0.6, label="23 flights")
    ax.axvline(31, color="C3", ls="--", lw=1)
    ax.annotate("forecast for\nthe launch", (31, 0.04), xytext=(32, 0.04), color="C3", fontsize=9)
    ax.set(xlabel="temperature at launch (F)", ylabel="O-ring damage", xlim=(30, 85))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    return ax


def main(picture: str | None = None) -> None:
    """Print the tables, and write the picture where a file name is given."""
    model = fit()
    answers = damage(model)
    print("O-rings were damaged on 7 of 23 flights, the more often the colder it was.")
    print("A logistic regression in NumPy, and the odds of damage on the day of the launch:\n")
    print(infer(model, parameters), answers, probability(answers), sep="\n\n")
    if picture is not None:
        figure: Any = draw(model).figure
        figure.savefig(picture, dpi=150)
        print(f"Wrote {picture}")
