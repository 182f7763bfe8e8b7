"""Bands of every method on a 1D task: predictions over a grid and their covariance.

Left open by the paper, and done here:

- Steps: 10 000 of gradient descent to fit, 2 000 for each refit from there (warm start).
- lambda is 1 % of half the sum of squared errors, on the scale of that sum. The covariance is
  the difference over lambda times the noise variance. (The appendix has the interval *divided* by
  the root mean squared error; its first remark implies that it is multiplied.)
- At these rates gradient descent hovers at its edge of stability (rate times largest curvature
  is 2), so parameters still move. The paper's Algorithms 1 and 3 take differences against the
  fitted parameters and count that movement as response ("literal"); the difference of two ends
  refitted alike, which is not in the paper, does not ("idm").
- On some data sets it diverges; these start again at half the rate.
- The delta method inverts a matrix that is singular: 151 parameters of which the data determine
  about ten. It gets the Gauss-Newton matrix, damped by 1 / (rate * steps), which is what gradient
  descent of that length resolves: "delta" with the steps of the fit, "delta_refit" with those
  of the refits.
- The Gaussian process is fitted to y less its mean, over its standard deviation.

The library's own routes are in `public`. Beyond the paper and *not in the library*, by code of this
folder, the fit is finished with an l2 penalty chosen from the data alone (see `evidence`: the
"evidence" is largest, or the "weakest" l2 that it allows), and has the Gauss-Newton curvature, the
unbiased noise variance, and Student's t for its degrees of freedom. The curvature at one optimum
does not reflect others that fit as well and differ where there are no data, so the "mixture"
combines the finished fits from four starts, each at its weakest l2. Those that the evidence allows
count alike: at that l2 all have nearly the same evidence.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import implicit_delta as idm
from experiments.network import Network, descend
from experiments.one_d.evidence import maximize_evidence, plausible, weakest

LABELS = {
    "literal": "IDM, as in the paper",
    "idm": "IDM, two refits alike",
    "delta": "Delta method, damped like the fit",
    "delta_refit": "Delta method, damped like IDM's refits",
    "gp": "GP-Matern52",
    "default": "The library, one call",
    "public": "The library, finished fit",
    "evidence": "Not in the library: l2 of largest evidence",
    "weakest": "Not in the library: weakest plausible l2",
    "mixture": "Not in the library: four starts",
}


PAPER_NETWORK = Network()


@dataclass(frozen=True)
class Training:
    """Network and lengths of training, and whether in single precision (as accurate, faster)."""

    network: Network = PAPER_NETWORK
    steps: int = 10_000
    refit_steps: int = 2_000
    single: bool = False

    @property
    def dtype(self):
        return np.float32 if self.single else np.float64


@dataclass(frozen=True)
class Band:
    """Predictions (K,), their covariance (K, K), degrees of freedom, and where it is refused."""

    value: np.ndarray
    covariance: np.ndarray
    freedom: float | np.ndarray = np.inf
    answered: bool | np.ndarray = True

    @property
    def std_error(self):
        return np.sqrt(np.clip(np.diag(self.covariance), 0, None))

    def half_width(self, confidence_level=0.95):
        return student.ppf((1 + confidence_level) / 2, self.freedom) * self.std_error


TRAINING, SINGLE = Training(), Training(single=True)


def all_bands(task, x, y, rng, grid, training):
    """Bands of every method by name, IDM's matrices before projection, and the fit's halvings."""
    network = training.network
    starts = draw_starts(network, rng)
    theta, halvings = fit_as_paper(task, x, y, starts[0], training)
    bands, raw = implicit_delta_bands(task, x, y, theta, grid, training)
    bands |= delta_bands(task, x, y, theta, grid, training)
    bands["gp"] = process_band(x, y, grid)
    return bands | finished_bands(network, x, y, starts, grid), raw, halvings


def fit_as_paper(task, x, y, start, training):
    """Gradient descent at the paper's rate, which is for the paper's n; and its halvings."""
    rate = training.dtype(task.rate * task.n / x.shape[-1])
    start, x, y = (np.asarray(part, training.dtype) for part in (start, x, y))
    theta, halvings = descend(training.network, start, x, y, rate=rate, steps=training.steps)
    return theta.astype(float), halvings


def implicit_delta_bands(task, x, y, theta, grid, training):
    """The paper's FDIDM, properly paired and literally; PSD projection for both."""
    network = training.network
    squares = float(np.sum((y - network.predict(theta, x)) ** 2))
    lam = 0.01 * squares / 2
    pushes = grid, np.full(grid.size, lam)
    ahead, rest = refits(task, x, y, theta, pushes, grid, training)
    value, noise = network.predict(theta, grid), squares / x.size
    raw = {"idm": noise * (ahead - rest) / lam, "literal": noise * (ahead - value) / lam}
    return {name: Band(value, project(matrix)) for name, matrix in raw.items()}, raw


def refits(task, x, y, theta, pushes, grid, training):
    """Predictions on the grid after a refit for each push (x0, lam), and after one without."""
    network, dtype = training.network, training.dtype
    theta, x, y = (np.asarray(part, dtype) for part in (theta, x, y))
    rate = dtype(task.refit_rate * task.n / x.size)
    options = {"rate": rate, "steps": training.refit_steps}
    push = tuple(np.asarray(part, dtype) for part in pushes)
    ahead, _ = descend(network, theta, x, y, push=push, **options)
    rest, _ = descend(network, theta, x, y, **options)
    return tuple(network.predict(end.astype(float), grid) for end in (ahead, rest))


def project(matrix):
    """The paper's projection: symmetrize and keep the positive eigenvalues."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * np.clip(values, 0, None)) @ vectors.T


def delta_bands(task, x, y, theta, grid, training):
    """The explicit delta method at the network as trained, damped in two ways."""
    network, scale = training.network, x.size / task.n
    noise = np.mean((y - network.predict(theta, x)) ** 2)
    lengths = {
        "delta": task.rate / scale * training.steps,
        "delta_refit": task.refit_rate / scale * training.refit_steps,
    }
    # l2 and not the method's damping: the same matrix, but a unit that is saturated at every x has
    # weights of no curvature, whose "standard errors" of 1e16 would be the steps of differences
    models = {
        name: least_squares(network, x, y, theta, variance="mle", l2=1 / (noise * length))
        for name, length in lengths.items()
    }
    return {name: _infer(network, model, grid) for name, model in models.items()}


def process_band(x, y, grid):
    """A Gaussian process with a Matern 5/2 kernel, by type-II maximum likelihood."""
    kernel = ConstantKernel(1.0, (1e-3, 1e5)) * Matern(1.0, (1e-2, 1e3), nu=2.5)
    kernel += WhiteKernel(0.1, (1e-6, 1e1))
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        # a hyperparameter at its bound: the likelihood is flat there, and so is the prediction
        warnings.simplefilter("ignore")
        process.fit(x[:, None], y)
    value, covariance = process.predict(grid[:, None], return_cov=True)
    noise = process.kernel_.k2.noise_level * np.var(y)
    return Band(value, covariance - noise * np.eye(grid.size))


def finished_bands(network, x, y, starts, grid):
    """The finished fit at two choices of l2, and the mixture over starts at the second."""
    best = [maximize_evidence(network, x, y, start) for start in starts]
    fits = plausible(network, x, y, best)
    bands = [penalized_band(network, x, y, fit, grid) for fit in fits]
    return {
        "evidence": penalized_band(network, x, y, best[0], grid),
        "weakest": penalized_band(network, x, y, weakest(network, x, y, best[0]), grid),
        "mixture": mixture(bands),
    }


def mixture(bands):
    """Mean and covariance of a mixture of normal distributions in equal parts."""
    values = np.array([band.value for band in bands])
    between = np.cov(values.T, ddof=0).reshape(values.shape[1], -1)
    within = np.mean([band.covariance for band in bands], axis=0)
    freedom = np.mean([band.freedom for band in bands])
    return Band(values.mean(axis=0), within + between, float(freedom))


def draw_starts(network, rng):
    """Four starts: the paper's, and larger ones, which place the units elsewhere."""
    first = network.start(rng)
    return [first, *(rng.uniform(-size, size, network.d) for size in (0.5, 1.0, 2.0))]


def penalized_band(network, x, y, fit, grid):
    model = least_squares(network, x, y, fit.theta, variance="unbiased", l2=fit.l2)
    return _infer(network, model, grid, freedom=fit.freedom)


def least_squares(network, x, y, theta=None, **options):
    return idm.from_residuals(
        lambda theta: y - network.predict(theta, x),
        theta,
        jacobian=lambda theta: -network.jacobian(theta, x),
        **options,
    )


def _infer(network, model, grid, freedom=np.inf):
    method = idm.Infinitesimal(curvature="ggn")
    with warnings.catch_warnings():
        # drift of the unfinished fit and bending where there are no data are findings here
        warnings.simplefilter("ignore", idm.ImplicitDeltaWarning)
        estimate = idm.infer(
            model, lambda theta: network.predict(theta, grid), method, strict=False
        )
    return Band(estimate.value, estimate.covariance, freedom)
