"""The last launch of Challenger: how sure could one have been?

Before the launch of 28 January 1986, O-rings of the rocket boosters had been damaged on 7 of 23
flights, the more often the colder it was. The forecast for the launch was 31 degrees Fahrenheit.
A logistic regression written in NumPy, the probability of damage at 31 degrees, and an honest
error bar on it. Data: Dalal, Fowlkes and Hoadley (1989), JASA 84, 945-957.
"""

import argparse

import numpy as np
from scipy.special import expit

import implicit_delta as idm

TEMPERATURE = np.array(
    [66, 70, 69, 68, 67, 72, 73, 70, 57, 63, 70, 78, 67, 53, 67, 75, 70, 81, 76, 79, 75, 76, 58]
)
DAMAGED = np.array([0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1])


def log_odds(theta, temperature):
    return theta[0] + theta[1] * (temperature - 70)


def probability(theta, temperature):
    return expit(log_odds(theta, temperature))


def loglik(theta):
    """One value per flight: the library does the summing."""
    return DAMAGED * log_odds(theta, TEMPERATURE) - np.logaddexp(0, log_odds(theta, TEMPERATURE))


def questions(theta):
    even_odds = 70 - theta[0] / theta[1]
    return np.array([log_odds(theta, 31), log_odds(theta, 70), even_odds])


def main(picture):
    model = idm.from_loglik(loglik, start=[0, 0], names=["at 70 F", "per degree"])
    print(idm.infer(model, idm.parameters), end="\n\n")

    names = ["log-odds at 31 F", "log-odds at 70 F", "even odds at (F)"]
    answers = idm.infer(model, questions, names=names)
    print(answers.summary(), end="\n\n")

    low, high = expit(answers.contrast([1, 0, 0]).confidence_interval(0.95))
    print(f"Probability of damage at 31 F: {expit(answers.value[0]):.4f}, 95 % interval "
          f"{low:.3f} to {high:.4f}")  # fmt: skip
    refits = idm.infer(model, lambda theta: log_odds(theta, 70), idm.FiniteDifference())
    print(
        f"Standard error of the log-odds at 70 F: {answers.standard_error[1]:.4f} by one linear "
        f"solve, {refits.standard_error:.4f} by two refits"
    )

    draw(model, picture)
    print(f"Wrote {picture}")


def draw(model, picture):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    grid = np.linspace(30, 85, 111)
    curve = idm.infer(model, lambda theta: log_odds(theta, grid))
    fig, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
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
    fig.savefig(picture, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", default="demo.png", help="where to write the picture")
    main(parser.parse_args().picture)
