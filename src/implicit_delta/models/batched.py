"""A fitted model that goes through its data batch by batch, whatever the backend."""

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import accumulate, pairwise
from typing import Any, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np

from implicit_delta._core.arguments import Counter, as_parameters
from implicit_delta._core.cache import LastCache
from implicit_delta._core.clusters import Clusters
from implicit_delta._core.limits import GAUSS_NEWTON_LIMIT
from implicit_delta._core.precision import Precision
from implicit_delta._core.types import Array
from implicit_delta.errors import ConvergenceError, UnsupportedModelError
from implicit_delta.likelihoods import Gaussian, Poisson
from implicit_delta.models.base import (
    NO_OUTPUTS,
    Bonus,
    Curvature,
    FittedModel,
    RowNumbers,
    Whitened,
    cannot_draw,
    range_of,
    scatter_of,
)
from implicit_delta.models.curvature import gram, times
from implicit_delta.models.evidence import evidence_of
from implicit_delta.models.facts import NO_FACTS, Facts
from implicit_delta.models.module_prediction import ModulePredictor
from implicit_delta.models.noise import Noise, estimated_noise
from implicit_delta.models.output_curvature import OutputCurvature, negligible_below
from implicit_delta.models.penalty import NO_PENALTY, Penalty
from implicit_delta.models.program import Product, Program
from implicit_delta.models.states import check_near
from implicit_delta.models.terms import RowTerms, SupervisedTerms
from implicit_delta.models.weights import Weights

NO_BATCHING = (RuntimeError, NotImplementedError, ValueError, TypeError)  # errors of torch.vmap
DENSE_FROM = 32  # columns at once from which on forming the Gauss-Newton matrix is cheaper
# Of the second derivatives of one batch. With ten million parameters and 2048 rows, one batch took
# 5.6 vectors of memory more than four of them, and as long.
BATCH_BYTES = 2**25
PROBES = 32  # random directions for the trace of a curvature
FEW_COLUMNS = 100  # as many products as a solve and the evidence take
JACOBIAN_BYTES = 2**26  # of the output Jacobians held at a time
# A part of the Gauss-Newton matrix saves most of the time of forming it, unless that is short, much
# is kept, or products for many columns or eigenvalues of many outputs take as long.
LONG = 1e10  # multiplications: a quarter of a second
PRODUCTS, OUTPUTS = 70, 50  # parameters for each column, and for each output
MOST_KEPT = 0.5  # of the eigenvalues
PASS_BYTES = 2**20  # of derivatives: a pass over fewer, such as one row, takes as long

Data: TypeAlias = tuple[Any, Any]  # a batch and the weights of its rows
Step: TypeAlias = Callable[[RowNumbers], Array]  # train on these rows: theta (d,) afterwards
Method = TypeVar("Method", bound=Callable[..., Any])


class Batches(Protocol):
    """Rows of data in a fixed order, in arrays of the backend."""

    def __iter__(self) -> Iterator[Any]:
        """Go through all rows once."""

    def split(self, most: int, sizes: tuple[int, ...]) -> Iterator[tuple[Any, int]]:
        """Go through all rows once, at most so many at a time if batches of these sizes can be cut.

        With the number of rows.
        """

    def take(self, rows: RowNumbers) -> Any:
        """Make a batch of the rows with these numbers."""

    def with_targets(self, targets: Array, terms: SupervisedTerms) -> Self:
        """Replace the targets that these terms see."""


def in_context(method: Method) -> Method:
    """Run a method of a model in the context of its functional."""

    @wraps(method)
    def within(self: "BatchedModel", *args: Any, **kwargs: Any) -> Any:
        with self.functional.context():
            return method(self, *args, **kwargs)

    return cast(Method, within)


@dataclass(frozen=True, eq=False, repr=False)
class BatchedModel(FittedModel):
    """A fitted model of a program and batches; a backend adds psi and training.

    Attributes
    ----------
    program : Program
        Terms and their derivatives on one batch.
    batches : Batches
    sizes : tuple of int
        The number of rows in each batch.
    keep_graphs : bool
        Keep the products with a curvature, for the last theta, between calls.
    """

    program: Program
    batches: Batches
    sizes: tuple[int, ...]
    theta: Array
    weights: Weights
    penalty: Penalty = NO_PENALTY
    names: tuple[str, ...] | None = None
    keep_graphs: bool = False
    facts: Facts = NO_FACTS
    columns: tuple[str, ...] | None = None  # of the inputs, for questions
    not_double: str = ""  # why float64 could not be used
    counter: Counter = field(default_factory=Counter)
    _last: LastCache = field(init=False, default_factory=LastCache)

    @abstractmethod
    def trainer(self, optimizer: Any, slope: Bonus) -> Step:
        """Start a stochastic training at theta; each call is a step on one batch of rows.

        A step descends minus the mean of the weighted terms, plus over n a function that is given
        by its slope: the penalty is part of it.
        """

    def with_predictor(self) -> Self:
        """Read tables for questions, if the columns of the inputs have names."""
        if self.columns is None:
            return self
        predictor = ModulePredictor(self.columns, self._inputs, self.mean, self)
        return replace(self, facts=self.facts.with_host(predictor=predictor))

    @abstractmethod
    def mean(self, parameters: Any, inputs: Array) -> Any:
        """Means of the targets of inputs (m, p), in the backend's own language."""

    @in_context
    def _inputs(self) -> Array:
        parts = [np.asarray(batch[0], dtype=np.float64) for batch in map(_on_host, self.batches)]
        return np.concatenate(parts)

    @property
    def functional(self) -> Any:
        """The model as a function of its flat parameters."""
        return self.program.functional

    @property
    def row_terms(self) -> RowTerms:
        """The log-likelihood of a batch."""
        return self.program.row_terms

    @property
    def precision(self) -> Precision:  # type: ignore[override]
        dtype = str(self.functional.dtype).removeprefix("torch.")
        return Precision(dtype, self.functional.given, self.not_double)

    @property
    def bends(self) -> bool:  # type: ignore[override]
        return isinstance(self.row_terms, SupervisedTerms)

    @property
    def formable(self) -> bool:
        """As of any model, but not where a row has more outputs (of tokens) than there are weights.

        Each column of the matrix is then a product.
        """
        return super().formable and (self.d <= FEW_COLUMNS or self._output_size() <= self.d)

    @property
    def curvature(self) -> Curvature:  # type: ignore[override]
        return "ggn" if self.penalty.early_stop else "hessian"

    @property
    def passes(self) -> int:
        """Passes over all rows so far; a product with k vectors counts k times."""
        return self.counter.count

    @in_context
    def terms(self, theta: Array) -> Array:
        flat = self.functional.flat(theta)
        self.counter.count += 1
        parts = [self._run(self.program.terms, flat, batch) for batch in self.batches]
        return np.concatenate(parts, dtype=np.float64)

    @in_context
    def objective(self, theta: Array) -> float:
        return float(self.weights.values @ self.terms(theta)) - self.penalty.value(theta)

    @in_context
    def score(self, theta: Array) -> Array:
        self.counter.count += 1
        return self._slope(theta, self._weighted())

    @in_context
    def batch_score(self, theta: Array, rows: RowNumbers) -> Array:
        weights = self.functional.flat(self.weights.values[rows] * (self.n / len(rows)))
        return self._slope(theta, [(self.batches.take(rows), weights)])

    @in_context
    def information(self, theta: Array, v: Array, curvature: Curvature = "hessian") -> Array:
        if curvature == "ggn" and not isinstance(self.row_terms, SupervisedTerms):
            raise UnsupportedModelError(
                'curvature="ggn" needs to know the outputs of the model and the likelihood of the '
                "targets given them: use `Gaussian()`, `Bernoulli()`, `Categorical()` or "
                "`Poisson()`, with `outputs=` and `targets=` for batches of any make. A loglik "
                'function of your own has only curvature="hessian".'
            )
        block = v.reshape(self.d, -1)
        if curvature == "ggn" and block.shape[1] >= DENSE_FROM and self.d <= GAUSS_NEWTON_LIMIT:
            return times(self.gauss_newton_matrix(theta), v)
        return self._products(theta, block, curvature).reshape(v.shape)

    @in_context
    def gauss_newton_matrix(self, theta: Array) -> Array:
        """The whole Gauss-Newton matrix (d, d), kept for the last theta."""
        return cast(Array, self._kept(theta, "matrix", self._form))

    def gauss_newton_part(self, theta: Array, columns: int) -> Array | None:
        """As of any model: without directions in which the outputs hardly bend."""
        few = columns < DENSE_FROM and columns * PRODUCTS <= self.d
        return self._part(theta, columns) if few else None

    @in_context
    def _part(self, theta: Array, columns: int) -> Array | None:
        if self._last.holds(theta, "matrix") or not self._splits():
            return None
        with contextlib.suppress(*NO_BATCHING):
            return self._form_part(theta, columns)
        return None

    @in_context
    def terms_along(self, theta: Array, v: Array) -> Array:
        return np.concatenate(list(self._along(theta, v)))

    @in_context
    def scatter(self, theta: Array, v: Array, clusters: Clusters | None = None) -> Array:
        """Accumulate batch by batch: the derivatives of all rows, (n, k), are never held."""
        spans, counts = self._spans(), self.weights.counts
        each = map(self.weights.per_observation, self._along(theta, v), spans)
        parts = zip(spans, each, strict=True)
        if clusters is None:
            return np.asarray(sum(scatter_of(along, counts[rows]) for rows, along in parts))
        sums = np.zeros((clusters.count + 1, v.shape[1]))  # the last for rows without weight
        for rows, along in parts:
            np.add.at(sums, clusters.codes[rows], counts[rows, None] * along)
        return np.asarray(sums[:-1].T @ sums[:-1])

    @in_context
    def curvature_noise(self, theta: Array, rng: np.random.Generator, count: int) -> Array | None:
        r"""Draw :math:`\sum_i \sqrt{w_i} J_i' S_i \epsilon_i + \sqrt{\text{ridge}}\, z`."""
        if self.penalty.functions or not isinstance(self.row_terms, SupervisedTerms):
            return None
        flat = self.functional.flat(theta)
        total = np.sqrt(self.penalty.floor) * rng.standard_normal((count, self.d))
        for rows, (batch, weights) in zip(self._spans(), self._weighted(), strict=True):
            size = rows.stop - rows.start
            outputs = size * self.program.output_size(flat, batch)
            noise = self.program.block(rng.standard_normal((count, outputs)), size)
            pulled = self.program.product(self.program.noise, flat, batch, weights)(noise)
            total += self.functional.numpy(pulled)[:count]
        self.counter.count += count
        return np.asarray(total.T)

    def whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        if not isinstance(self.row_terms, SupervisedTerms):
            raise UnsupportedModelError(NO_OUTPUTS)
        return self._whitened(theta, v)

    def squared_residuals(self) -> Array | None:
        """As in any model, where the targets can vary more than the likelihood has it."""
        terms = self.row_terms
        varying = isinstance(terms, SupervisedTerms) and isinstance(
            terms.likelihood, Gaussian | Poisson
        )
        return super().squared_residuals() if varying else None

    def reweighted(self, weights: Array) -> Self:
        return replace(self, weights=self.weights.replaced(weights))

    def at(self, theta: Array) -> Self:
        moved = as_parameters(theta).astype(self.theta.dtype, copy=False)
        return replace(self, theta=moved, facts=self.facts.moved(moved - self.theta))

    @in_context
    def redrawn(self, rng: np.random.Generator) -> Self:
        if not isinstance(self.row_terms, SupervisedTerms):
            return super().redrawn(rng)
        flat = self.functional.flat(self.theta)
        self.counter.count += 1
        outputs = [self._run(self.program.outputs, flat, batch) for batch in self.batches]
        terms = self.row_terms
        targets_of = self.program.supervised.targets
        targets = [self.functional.numpy(targets_of(batch)) for batch in self.batches]
        if len({array.shape[1:] for array in outputs}) > 1:
            raise cannot_draw("its batches have outputs of different shapes")
        drawn = terms.likelihood.redraw(
            np.concatenate(outputs), np.concatenate(targets), rng, self.weights.values
        )
        return replace(self, batches=self.batches.with_targets(drawn, terms))

    def ascend(
        self, bonus: Bonus | None, batches: Iterable[RowNumbers], optimizer: Any
    ) -> Iterator[Array]:
        def slope(theta: Array, rows: RowNumbers) -> Array:
            pull = self.penalty.score(theta)
            return pull if bonus is None else pull - bonus(theta, rows)

        step = self.trainer(optimizer, slope)
        for rows in batches:
            theta = step(rows)
            if not np.all(np.isfinite(theta)):
                raise ConvergenceError(
                    "The stochastic training diverged: a parameter is NaN or infinite. Use a "
                    "smaller learning rate."
                )
            yield theta

    @property
    def pseudo(self) -> str:
        terms = self.row_terms
        return terms.likelihood.pseudo if isinstance(terms, SupervisedTerms) else ""

    def with_penalty(self, penalty: Penalty, **others: Any) -> Self:
        """As of any model; a Gauss-Newton matrix that was formed is handed on."""
        changed = super().with_penalty(penalty, **others)
        if self._last.holds(self.theta, "matrix") and penalty.functions == self.penalty.functions:
            matrix = self.gauss_newton_matrix(self.theta).copy()
            matrix[np.diag_indices(self.d)] += penalty.floor - self.penalty.floor
            changed._last.get(changed.theta, "matrix", lambda: matrix)
        return changed

    def tethered(self) -> Self:
        """Tie the model to its start by the evidence.

        An estimated noise variance is then the mean squared residual: in trials that came closer
        to the spread of retrainings than with effective parameters taken off.
        """
        if not isinstance(self.row_terms, SupervisedTerms):
            return super().tethered()
        model = self._with_mean_square() if self.facts.noise_rule else self
        scale = self.scale_of_weights(self.weights.values)
        tie = evidence_of(model, scale)
        facts = model.facts.with_training(effective=tie.effective)
        held = model.penalty.stopped_early(scale * tie.strength, facts.training.start)
        return model.with_penalty(held, facts=facts)

    def scale_of_weights(self, weights: Array) -> float:
        """Mean of weights that are no counts, and so have no scale.

        Precisions of squared errors are in units of a noise variance, estimated or known.
        """
        gaussian = isinstance(self.program.supervised.likelihood, Gaussian)
        if self.weights.kind == "frequency" or (gaussian and self.weights.kind == "precision"):
            return 1.0
        return float(np.mean(weights[weights > 0]))

    def _with_mean_square(self) -> Self:
        """Take the mean squared residual as the noise variance, whatever the rule was."""
        count = float(np.sum(self.weights.counts)) * self._output_size()
        scale = self.weights.mean_one / count
        scale *= -2.0 * float(self.weights.values @ self.terms(self.theta))
        return self.of_noise(Noise(scale * self.noise, np.inf), self.facts.noise_rule)

    def with_noise(self) -> Self:
        """Plug in the noise variance of a Gaussian likelihood that left it open."""
        terms = self.row_terms
        likelihood = terms.likelihood if isinstance(terms, SupervisedTerms) else None
        if not isinstance(likelihood, Gaussian) or isinstance(likelihood.variance, float):
            return self
        matrix = None if self.penalty.functions else lambda: self.gauss_newton_matrix(self.theta)
        targets_of = self.program.supervised.targets
        targets = [self.functional.numpy(targets_of(batch)) for batch in self.batches]
        columns = np.concatenate(targets).reshape(-1, self._output_size()).astype(np.float64)
        noise = estimated_noise(likelihood, self, columns, matrix)
        return self.of_noise(noise, str(likelihood.variance))

    def of_noise(self, noise: Noise, rule: str | None) -> Self:
        """Take this noise variance of a Gaussian likelihood, estimated by a rule."""
        facts = replace(self.facts, df=noise.df, noise_rule=rule)
        return replace(self._of_likelihood(Gaussian(noise.variance)), facts=facts)

    def renoised(self) -> tuple[Self, float]:
        """As of any model; an early stop goes with the variance by which its ridge was found."""
        if self.facts.noise_rule is None or self.penalty.early_stop:
            return self, 1.0
        rule: Any = None if self.facts.noise_rule == "None" else self.facts.noise_rule
        fresh = self._of_likelihood(Gaussian(rule)).with_noise()
        return fresh, fresh.noise / self.noise

    def _of_likelihood(self, likelihood: Gaussian) -> Self:
        terms = replace(self.program.supervised, likelihood=likelihood)
        return replace(self, program=replace(self.program, row_terms=terms))

    @property
    def noise(self) -> float:
        """Variance of a Gaussian likelihood."""
        return cast(Gaussian, self.program.supervised.likelihood).noise

    def sum_of_squares(self) -> tuple[float, int]:
        """Sum of weighted squared residuals of a Gaussian likelihood, and the outputs of a row."""
        squares = -2.0 * self.noise * float(self.weights.values @ self.terms(self.theta))
        return squares, self._output_size()

    def checked(self, by_evidence: bool = False) -> Self:
        """Plug in the noise, and a ridge by the evidence; refuse terms that are losses."""
        self._refuse_losses()
        check_near(self.facts.training, self.theta)
        model = self.with_predictor().with_noise()
        return model.tethered() if by_evidence else model

    @in_context
    def _refuse_losses(self) -> None:
        """Refuse a log-likelihood function that is positive where it has a minimum."""
        if isinstance(self.row_terms, SupervisedTerms) or np.mean(self.terms(self.theta)) <= 0:
            return
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(self.d, PROBES))
        v = np.sqrt(self.d) * np.eye(self.d) if self.d <= PROBES else signs
        bent = self.information(self.theta, v) - self.penalty.curvature(self.theta, v)
        traces = np.sum(v * bent, axis=0)  # each an estimate, or together the trace itself
        error = 0.0 if self.d <= PROBES else float(np.std(traces)) / PROBES**0.5
        if np.mean(traces) + 2 * error < 0:
            raise ValueError(
                "The log-likelihood has the curvature of a minimum here, and its terms are "
                "positive: they are losses. Return minus the loss of each row."
            )

    def __repr__(self) -> str:
        stop = self.penalty.early_stop
        penalty = f"l2={self.penalty.given.floor:g}" + ", penalty" * bool(self.penalty.functions)
        penalty += f", early stop={stop.strength:.3g} (evidence)" if stop else ""
        sizes = f"n={self.n}, d={self.d}"
        if np.any(self.weights.values != 1):
            penalty += f", {self.weights.kind} weights {range_of(self.weights.values)}"
        return f"{type(self).__name__}({sizes}, {self.row_terms}, {penalty}, {self.precision})"

    def _spans(self) -> list[slice]:
        """The rows of each batch."""
        return [slice(*ends) for ends in pairwise(accumulate(self.sizes, initial=0))]

    def _weighted(self) -> Iterator[Data]:
        """Go through the batches with the weights of their rows."""
        for rows, batch in zip(self._spans(), self.batches, strict=True):
            yield batch, self.functional.flat(self.weights.values[rows])

    def _slope(self, theta: Array, weighted: Iterable[Data]) -> Array:
        """Gradient of the weighted terms of batches less the penalty."""
        flat, total = self.functional.flat(theta), -self.penalty.score(theta)
        for data in weighted:
            total -= self._run(self.program.gradient, flat, *data)
        return total

    def _along(self, theta: Array, v: Array) -> Iterator[Array]:
        """Derivatives of the terms of each batch along the columns of v, (b, k)."""
        flat, block = self.functional.flat(theta), self._block(v)
        self.counter.count += 1
        for batch in self.batches:
            along = self.program.product(self.program.along, flat, batch)(block)
            yield self.functional.numpy(along)[: v.shape[1]].T.astype(np.float64, copy=False)

    def _whitened(self, theta: Array, v: Array) -> Iterator[Whitened]:
        most = max(1, JACOBIAN_BYTES // (8 * self._output_size() * v.shape[1]))
        self.counter.count += 1
        for batch, size in self.batches.split(most, self.sizes):
            yield self._whitened_batch(theta, batch, size, v)

    @in_context
    def _whitened_batch(self, theta: Array, batch: Any, size: int, v: Array) -> Whitened:
        """Whiten in NumPy, in double precision: the likelihoods are the same there."""
        flat = self.functional.flat(theta)
        likelihood = self.program.supervised.likelihood
        outputs = np.asarray(self._run(self.program.outputs, flat, batch), dtype=np.float64)
        targets = np.asarray(self.functional.numpy(self.program.supervised.targets(batch)))
        rows = self._by_factors(flat, batch, size, v)
        if rows is None:
            product = self.program.product(self.program.tangents, flat, batch)
            moved = self.functional.numpy(product(self.program.block(v.T, size)))[: v.shape[1]]
            root = np.asarray(likelihood.root(outputs)(moved.astype(np.float64, copy=False)))
            root = root * np.sqrt(likelihood.mass(outputs, targets))
            rows = np.moveaxis(root.reshape(v.shape[1], size, -1), 0, -1)
        return Whitened(
            rows,
            likelihood.residual(outputs, targets).reshape(size, -1),
            likelihood.spread(outputs).reshape(size, -1),
        )

    def _by_factors(self, flat: Any, batch: Any, size: int, v: Array) -> Array | None:
        """Whitened rows times as many columns as parameters, (b, p, k): a pass for each output."""
        if not self._output_size() <= self.d <= v.shape[1]:
            return None
        with contextlib.suppress(*NO_BATCHING), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # and still a gain
            ones = self.functional.flat(np.ones(size))
            factors = self._run(self.program.factors, flat, batch, ones)
            return np.asarray((factors.astype(np.float64) @ v).reshape(size, -1, v.shape[1]))
        return None

    def _products(self, theta: Array, v: Array, curvature: Curvature) -> Array:
        """The curvature times the columns of v, one part of L after the other."""
        block, total = self._block(v), np.ascontiguousarray(self.penalty.curvature(theta, v).T)
        for product in self._curvatures(theta, curvature):
            total += self.functional.numpy(product(block))[: v.shape[1]]
        self.counter.count += v.shape[1]
        return total.T

    def _curvatures(self, theta: Array, curvature: Curvature) -> Iterable[Product]:
        """Curvature of every batch."""
        if not self.keep_graphs:
            return self._build(theta, curvature)
        make = lambda point: list(self._build(point, curvature))  # noqa: E731
        return cast(list[Product], self._kept(theta, curvature, make))

    def _build(self, theta: Array, curvature: Curvature) -> Iterator[Product]:
        build = self.program.gauss_newton if curvature == "ggn" else self.program.hessian
        flat = self.functional.flat(theta)
        self.counter.count += self.keep_graphs  # forwards, once for all products
        for data in self._weighted():
            yield self.program.product(build, flat, *data)

    def _form(self, theta: Array) -> Array:
        """Form the Gauss-Newton matrix from Jacobians of rows."""
        flat = self.functional.flat(theta)
        self.counter.count += 1
        matrix = self._gram(flat)
        if matrix is None:
            return self._products(theta, np.eye(self.d), "ggn")
        return self._with_penalty(matrix, theta)

    def _with_penalty(self, matrix: Array, theta: Array) -> Array:
        for function in self.penalty.functions:
            matrix += function.curvature(theta, np.eye(self.d))
        matrix[np.diag_indices(self.d)] += self.penalty.floor
        return matrix

    def _splits(self) -> bool:
        """Whether a part of the Gauss-Newton matrix is worth a look: it takes long, outputs little.

        Rounding in single precision would show in what makes up for the rest.
        """
        if not isinstance(self.row_terms, SupervisedTerms) or self.d > GAUSS_NEWTON_LIMIT:
            return False
        outputs = self._output_size()
        double = self.functional.numpy(self.functional.flat(self.theta)).dtype == np.float64
        return double and OUTPUTS * outputs <= self.d and self.n * outputs * self.d**2 >= LONG

    def _form_part(self, theta: Array, columns: int) -> Array | None:
        flat = self.functional.flat(theta)
        self.counter.count += 1
        values = np.concatenate([curved.values for _, curved in self._output_curvatures(flat)])
        cut = negligible_below(values, columns)
        if np.mean(values > cut) > MOST_KEPT:
            return None
        return self._with_penalty(gram(self._factors_above(flat, cut), self.d), theta)

    def _factors_above(self, flat: Any, cut: float) -> Iterator[Array]:
        """Factors of the Gauss-Newton matrix for larger eigenvalues of the outputs' curvature."""
        for batch, curved in self._output_curvatures(flat):
            rows, roots = curved.above(cut)
            taken = self.program.calculus.map(lambda leaf, rows=rows: leaf[rows], batch)
            yield self._run(self.program.pulled, flat, taken, self.functional.flat(roots))

    def _output_curvatures(self, flat: Any) -> Iterator[tuple[Any, OutputCurvature]]:
        terms, stop = self.program.supervised, 0
        for batch, size in self._split():
            start, stop = stop, stop + size
            outputs = np.asarray(self._run(self.program.outputs, flat, batch), dtype=np.float64)
            if any(len(leaf) != len(outputs) for leaf in self.program.calculus.leaves(batch)):
                raise ValueError("Some array of a batch has not a row for each observation.")
            targets = np.asarray(self.functional.numpy(terms.targets(batch)))
            weights = self.weights.values[start:stop]
            yield batch, OutputCurvature.of(terms.likelihood, outputs, targets, weights)

    def _gram(self, flat: Any) -> Array | None:
        """Gauss-Newton matrix of the data from factors; None where columns are better.

        These are fewer than backward passes, or torch cannot batch some operation.
        """
        if self._output_size() > self.d:
            return None
        ways = [self.program.factors]
        if self._by_row_is_faster():
            ways.append(self.program.factors_by_row)
        for way in ways:
            with contextlib.suppress(*NO_BATCHING):
                return gram(self._factors(flat, way), self.d)
        return None

    def _by_row_is_faster(self) -> bool:
        """Compare a pass forth and back for each row with one over all rows for each column."""
        row = self.program.row_bytes
        by_row = self.n * max(PASS_BYTES, (1 + self._output_size()) * row)
        return by_row < self.d * max(PASS_BYTES, self.n * row)

    def _factors(self, flat: Any, way: Callable[..., Any]) -> Iterator[Array]:
        """Factors of the Gauss-Newton matrix, of as many rows at a time as fit into memory."""
        stop = 0
        for batch, size in self._split():
            start, stop = stop, stop + size
            weights = self.functional.flat(self.weights.values[start:stop])
            factors = self._run(way, flat, batch, weights)
            yield factors.astype(np.float64, copy=False)

    def _split(self) -> Iterator[tuple[Any, int]]:
        """Batches, with their sizes, of which the Jacobians fit into memory."""
        most = max(1, JACOBIAN_BYTES // (8 * self._output_size() * self.d))
        return self.batches.split(most, self.sizes)

    @in_context
    def _output_size(self) -> int:
        flat = self.functional.flat(self.theta)
        return self.program.output_size(flat, next(iter(self.batches)))

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the program, for NumPy."""
        return self.functional.numpy(self.program.run(function, *arguments))

    def _block(self, v: Array) -> Any:
        """Move the columns of v to the backend, as rows."""
        return self.program.block(v.T, self.sizes[0])

    def _kept(self, theta: Array, name: str, make: Callable[[Array], Any]) -> Any:
        """Cache a result for the last theta: a copy, as its owner may change the original."""
        key = theta if theta is self.theta else theta.copy()
        return self._last.get(key, name, lambda: make(key))


def _on_host(batch: Any) -> Any:
    return [part.cpu() if hasattr(part, "cpu") else part for part in batch[:1]]
