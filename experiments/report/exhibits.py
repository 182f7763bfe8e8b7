"""Figures of the report, with the words of the paper on each and a reading of what is shown."""

from collections.abc import Callable
from dataclasses import dataclass

from experiments.report import facts


@dataclass(frozen=True)
class Exhibit:
    """Figure, with the claim of the paper and a description of what is drawn here.

    `here` is a template: its figures come from ``facts(results, quick)``.
    """

    anchor: str
    link: str
    title: str
    picture: str
    paper: str
    here: str
    facts: Callable = lambda results, quick: {}

    def described(self, results, quick):
        """What is drawn, with its figures."""
        return self.here.format(**self.facts(results, quick))


EXHIBITS = (
    Exhibit(
        "sin", "Sin task", "In-between uncertainty: the sin task", "one_d/sin_fit.png",
        "IDM agrees most with the delta method, while the Gaussian process overestimates "
        "uncertainty, particularly when extrapolating. All methods recover the high-level "
        "structure of the covariance, though the scales differ.",
        "Bands of 95 % around each fit and the covariance of its predictions, on one data set; "
        "true spreads are those of {simulations} simulated ones. Fits of {fit_steps:,} steps, "
        "refits of {refit_steps:,}. Below, the library's routes by public names, one call and a "
        "finished fit, and finished fits from several starts by code that is not in the library. "
        "Dotted: refused in strict mode.",
        facts.of_one_d,
    ),
    Exhibit(
        "quadratic", "Quadratic task", "The quadratic task", "one_d/cubic_fit.png",
        "The inputs are evenly dispersed, and there is close alignment between the methods.",
        "The same panels as for the sin task.",
    ),
    Exhibit(
        "convergence", "Convergence", "Convergence in n and in lambda", "one_d/convergence.png",
        "The rescaled error falls with n. There is a wide range of acceptable lambda; values below "
        "0.01 perform poorly, and 0.512 even outperforms the delta method.",
        "The paper's rate is at the edge of stability, so half of it is shown too, and a finished "
        "fit. Shading is one standard error over {resamples} resamples.",
        facts.of_convergence,
    ),
    Exhibit(
        "coverage", "Coverage", "Coverage of 95 % intervals", "one_d/coverage.png",
        "Pointwise coverage is near nominal on the quadratic task; on the sin task every method is "
        "20 points or more away.",
        "Share of {data_sets} data sets whose interval holds the truth, at each input: as in the "
        "paper, by the library's public routes ({public} data sets), of which a refusal counts as "
        "missed, and by code that is not in the library. Gray where the sin task has data.",
        facts.of_one_d,
    ),
    Exhibit(
        "lengths", "Length", "How long to train: the quadratic task again", "one_d/lengths.png",
        "The interval is the one “after convergence”; the number of steps is not given.",
        "The paper's fits after {shortest:,} to {longest:,} steps: mean coverage, and standard "
        "errors over the spread of the fits, with the paper's noise variance RSS / n and with the "
        "true one. The coverage above is after {steps:,} steps.",
        facts.of_lengths,
    ),
    Exhibit(
        "utility", "Costs", "The cost downstream of a classifier", "classification/utility.png",
        "IDM predicts the distribution of the average cross-entropy on held-out data, with good "
        "coverage, for a fraction of the cost of 50 bootstrap trainings.",
        "Above, as in the paper: no penalty, training stopped after {paper_steps:,} steps, beside "
        "trainings from scratch on resampled rows; and infer's own answers for a training that "
        "stopped, alone and with trainings from other starts. Below, the same question with l2 "
        "from cross-validation, at a maximum, beside a bootstrap whose fits are finished too "
        "(replicates: {replicates}). Curves are normal, with the standard errors of the legend, "
        "dashed where strict mode refuses the number; a word in their place is the error that was "
        "raised.",
        facts.of_classification,
    ),
    Exhibit(
        "vae", "VAE", "Down-weighting the KL term of a VAE", "vae/reconstruction.png",
        "Higher T gives better reconstruction, and this advantage grows with the amount of "
        "variance added to the data.",
        "Gain of reconstruction over T = 1, continued alike, on {evaluated:,} training images: "
        "(T - 1) V per image, with V by infer. The weight T is given to all images, as the text "
        "has it, or to those {evaluated:,}, as its psi has it; shading is one standard error over "
        "{repeats} repeats. Trainings of {steps:,} steps, continued for {further_steps:,}: V is "
        "the response in as many steps, not the variance at a maximum, from which psi is {drift} "
        "standard errors away (drift).",
        facts.of_vae,
    ),
)  # fmt: skip
