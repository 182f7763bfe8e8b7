"""Figures of the report, with the words of the paper on each and a reading of what is shown."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Exhibit:
    """Figure, with the claim of the paper and a description of what is drawn here."""

    anchor: str
    link: str
    title: str
    picture: str
    paper: str
    here: str


EXHIBITS = (
    Exhibit(
        "sin", "Sin task", "In-between uncertainty: the sin task", "one_d/sin_fit.png",
        "IDM agrees most with the delta method, while the Gaussian process overestimates "
        "uncertainty, particularly when extrapolating. All methods recover the high-level "
        "structure of the covariance, though the scales differ.",
        "Bands of 95 % around each fit and the covariance of its predictions. The last two panels "
        "go beyond the paper: the fit is finished, with an l2 penalty chosen from the data alone.",
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
        "fit. Shading is one standard error over resamples.",
    ),
    Exhibit(
        "coverage", "Coverage", "Coverage of 95 % intervals", "one_d/coverage.png",
        "Pointwise coverage is near nominal on the quadratic task; on the sin task every method is "
        "20 points or more away.",
        "Share of data sets whose interval holds the truth, at each input.",
    ),
    Exhibit(
        "lengths", "Length", "How long to train: the quadratic task again", "one_d/lengths.png",
        "The interval is the one “after convergence”; the number of steps is not given.",
        "The paper's fits after a thousand to a hundred thousand steps: mean coverage, and "
        "standard errors over the spread of the fits, with the paper's noise variance RSS / n and "
        "with the true one. The figures above are after 10 000 steps.",
    ),
    Exhibit(
        "utility", "Costs", "The cost downstream of a classifier", "classification/utility.png",
        "IDM predicts the distribution of the average cross-entropy on held-out data, with good "
        "coverage, for a fraction of the cost of 50 bootstrap trainings.",
        "Above, as in the paper: no penalty, training stopped after 20 000 steps. Below, the same "
        "question with l2 from cross-validation, at a maximum. MNIST is in single precision, "
        "finished until no entry of the score exceeds 0.1; its finished bootstrap was not run in "
        "full, but with 10 replicates, each until no entry exceeds 1. Numbers are standard errors; "
        "where SG-FDIDM fails, its variance was negative.",
    ),
    Exhibit(
        "vae", "VAE", "Down-weighting the KL term of a VAE", "vae/reconstruction.png",
        "Higher T gives better reconstruction, and this advantage grows with the amount of "
        "variance added to the data.",
        "Gain of reconstruction over T = 1, continued alike, on 1000 training images. The weight T "
        "is given to all images, as the text has it, or to those 1000, as its psi has it; shading "
        "is one standard error over two repeats. Trainings of 8000 steps, continued for 2000.",
    ),
)  # fmt: skip
