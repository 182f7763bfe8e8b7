"""One data set of `costs`: the penalty, and the estimate of every method."""

import warnings
from dataclasses import dataclass, replace
from time import process_time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import implicit_delta as idm
from experiments.classification.classifier import (
    BATCH_SIZE,
    RATE,
    average_cost,
    train,
    train_and_keep,
)
from implicit_delta.models.redraws import reweight

PARTS = 5  # of the rows, each held out once in cross-validation
POWER_ITERATIONS = 20
DAMPING = 0.03  # of l2
DRIFT_WARNS = 0.1  # standard errors: less is not warned about by `infer`
PAIRS = 8  # of opposite steps
FALLING = 0.3  # the last part of a refit, in which the rate falls to zero
# Enough for a standard error; comparisons need more.
TO_ONE_PERCENT = idm.Infinitesimal(idm.conjugate_gradient(rtol=1e-2), curvature="ggn")
GGN = idm.Infinitesimal(idm.conjugate_gradient, curvature="ggn")
HESSIAN = idm.Infinitesimal(idm.conjugate_gradient)


@dataclass(frozen=True)
class Refits:
    """SG-FDIDM at a maximum: SGD with momentum, at a rate relative to the largest curvature.

    Steps and momentum were such that, without noise, they reached the standard error at the four
    maxima of version 0.1 to 0.4 %. At the flatter one that `polish` finds now on Waveform they end
    1.8 % below it, on Vehicle 0.1 % from it (see `settling`). Batches must be large enough to keep
    the noise small: where curvature differs much between rows, small ones are lost in it.
    """

    batch_size: int = 512
    steps: int = 1_500
    samples: int = 50
    runs: int = 4
    rate: float = 0.5
    momentum: float = 0.995

    @property
    def total(self):
        return self.steps + self.samples

    def falling(self, step):
        """Share of the rate at a step."""
        return min(1.0, max(1 - step / self.total, 0.0) / FALLING)


@dataclass(frozen=True)
class Setting:
    """Lengths of one data set's trainings, and sizes of its bootstraps.

    `steps` are of a training with penalty, `paper_steps` of one without; `folds` is how many of
    the parts are held out in cross-validation, with trainings of a quarter of `paper_steps`;
    `starts` counts trainings on the same rows from other initial weights.
    `finish` is the maximizer of the finished fits, or True for that of `polish`.
    """

    steps: int = 20_000
    paper_steps: int = 20_000
    folds: int = PARTS
    replicates: int = 50
    starts: int = 8
    warm_replicates: int = 200
    paper_refit_steps: int = 1_000
    refits: Refits = Refits()
    finish: object = True
    dtype: torch.dtype = torch.float64


@dataclass(frozen=True)
class Study:
    """One data set."""

    setting: Setting
    split: object
    seed: int

    @property
    def psi(self):
        return average_cost(self.split.X_held, self.split.y_held, self.setting.dtype)

    def as_paper(self):
        """One training, SG-FDIDM from there, and a bootstrap of trainings from scratch."""
        model, seconds = self.trained(0.0, self.setting.paper_steps)
        rows = [{"method": "training", "value": self.cost(model), "seconds": seconds}]
        rows.append(self.estimate("sg", model, self.refits_as_paper(model), strict=False))
        rng, n = np.random.default_rng([self.seed, 7]), len(self.split.y)
        resamples = rng.integers(n, size=(self.setting.replicates, n))
        modules = train(
            self.split.X, self.split.y, steps=self.setting.paper_steps, rng=rng, rows=resamples,
            l2=(0.0,),
        )  # fmt: skip
        psi = average_cost(self.split.X_held, self.split.y_held, torch.float32)
        draws = np.array([float(psi(module).detach()) for module in modules])
        return [*rows, self.spread("bootstrap", draws, seconds * len(draws))]

    def as_stopped(self):
        """The same training as in `as_paper`, taken as it stopped: `infer` without a method."""
        kept, row = self.kept()
        model = self.fitted(kept.module, start=kept.start, checkpoints=kept.checkpoints)
        return [row, self.answered("stopped", model)]

    def from_other_starts(self):
        """The same beside trainings on the same rows from other initial weights."""
        kept, row = self.kept()
        count, rng = self.setting.starts, np.random.default_rng([self.seed, 17])
        rows = np.tile(np.arange(len(self.split.y)), (count, 1))
        steps = self.setting.paper_steps
        others = train(self.split.X, self.split.y, steps=steps, rng=rng, rows=rows)
        model = self.fitted(kept.module, start=kept.start, replicates=others)
        found = {**self.answered("replicated", model), "starts": count}
        return [row, {**found, "seconds": found["seconds"] + count * row["seconds"]}]

    def solve(self, l2):
        """One linear solve, where `infer` has no drift to warn of."""
        trained, rows = self.begun(l2)
        rows.append(self.estimate("trained", trained, TO_ONE_PERCENT))
        settled, row = self.polished("settle", trained, drift=DRIFT_WARNS)
        rows += [row, self.estimate("solve", settled, TO_ONE_PERCENT)]
        return [{"l2": l2, **row} for row in rows]

    def refits_at_rest(self, l2):
        """SG-FDIDM where psi has come to rest, beside solves with the same objective.

        Where that is no maximum, the refits would run away from it: then at one.
        """
        trained, rows = self.begun(l2)
        model, row = self.polished("polish", trained)
        rows.append(row)
        if row["curvature"] == "ggn":
            started = process_time()
            model = self.maximum(model)
            rows.append({"method": "climb", "seconds": process_time() - started})
        rows += [self.estimate("ggn", model, GGN), *self.by_hessian(model, l2)]
        rows += [self.estimate("sg", model, self.refits(model)), self.second_order(model)]
        return [{"l2": l2, **row} for row in rows]

    def finished(self, l2):
        """The sandwich and a bootstrap whose fits are finished, at a maximum."""
        model = self.maximum(self.trained(l2, self.setting.steps)[0])
        *_, hessian = self.by_hessian(model, l2)
        damping = l2 * DAMPING if hessian["method"] == "damped" else 0.0
        robust = self.estimate("robust", model, replace(HESSIAN, damping=damping), robust=True)
        rows = [hessian, robust]
        if self.setting.warm_replicates:
            rows.append(self.warm_bootstrap(model))
        return [{"l2": l2, **row} for row in rows]

    def trained(self, l2, steps):
        rng, started = np.random.default_rng([self.seed, 3]), process_time()
        (module,) = train(self.split.X, self.split.y, steps=steps, rng=rng, l2=(l2,))
        seconds = process_time() - started
        return self.fitted(module, l2=l2), seconds

    def kept(self):
        """One training without penalty, with its states, and its row."""
        rng, started = np.random.default_rng([self.seed, 3]), process_time()
        kept = train_and_keep(self.split.X, self.split.y, steps=self.setting.paper_steps, rng=rng)
        seconds = process_time() - started
        value = self.cost(self.fitted(kept.module))
        return kept, {"method": "training", "value": value, "seconds": seconds}

    def begun(self, l2):
        """One training with penalty: the model, and a list of its row."""
        model, seconds = self.trained(l2, self.setting.steps)
        return model, [{"method": "training", "value": self.cost(model), "seconds": seconds}]

    def fitted(self, module, **options):
        dtype = self.setting.dtype
        data = torch.as_tensor(self.split.X, dtype=dtype), torch.as_tensor(self.split.y)
        return idm.from_torch(module, data, idm.Categorical(), dtype=dtype, **options)

    def polished(self, name, model, **options):
        """Go on until psi has settled: the model, and the row of this stage."""
        started = process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", idm.ImplicitDeltaWarning)
            found = idm.polish(model, self.psi, **options)
        row = {
            "method": name,
            "seconds": process_time() - started,
            "gain": found.gain,
            "drift": found.drift,
            "moved": found.moved,
            "curvature": found.curvature,
            "warnings": named(caught),
        }
        return found.model, row

    def maximum(self, model):
        maximizer = None if self.setting.finish is True else self.setting.finish
        return idm.polish(model, maximizer=maximizer)

    def by_hessian(self, model, l2):
        """Solve with the Hessian; in a flat direction, where it is not quite positive, damped."""
        row = self.estimate("hessian", model, HESSIAN)
        if "std_error" in row:
            return [row]
        return [row, self.estimate("damped", model, replace(HESSIAN, damping=l2 * DAMPING))]

    def cost(self, model):
        return float(model.evaluate(self.psi, model.theta))

    def refits_as_paper(self, model):
        """Algorithm 2 with the paper's optimizer, lambda and minibatches; the latter are paired."""
        return idm.StochasticFiniteDifference(
            lam=-0.01 * model.objective(model.theta), central=False, anchored=False,
            optimizer=lambda parameters: torch.optim.RMSprop(parameters, lr=RATE, alpha=0.9),
            batch_size=BATCH_SIZE, steps=self.setting.paper_refit_steps, samples=50, runs=2,
            curvature="ggn", rng=self.seed,
        )  # fmt: skip

    def refits(self, model):
        """Anchored refits for a maximum, with a rate that falls to zero."""
        setting = self.setting.refits
        rate = setting.rate * model.n / largest_curvature(model)

        def optimizer(parameters):
            sgd = torch.optim.SGD(parameters, lr=rate, momentum=setting.momentum)
            schedule = torch.optim.lr_scheduler.LambdaLR(sgd, setting.falling)
            sgd.register_step_post_hook(lambda *_: schedule.step())
            return sgd

        return idm.StochasticFiniteDifference(
            optimizer=optimizer, batch_size=setting.batch_size, steps=setting.steps,
            samples=setting.samples, runs=setting.runs, curvature="ggn",
            rng=np.random.default_rng([self.seed, 11]),
        )  # fmt: skip

    def answered(self, name, model):
        """Ask without a method; the row of what is refused has the number that was withheld."""
        row = self.estimate(name, model, None)
        if "std_error" in row:
            return row
        withheld = self.estimate(name, model, None, strict=False)
        return {**withheld, "refused": row["why"], "seconds": row["seconds"]}

    def estimate(self, name, model, method, **options):
        """One row: value, standard error, its diagnostics, and every warning that came."""
        started = process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", idm.ImplicitDeltaWarning)
            try:
                estimate = idm.infer(model, self.psi, method, **options)
            except idm.ImplicitDeltaError as error:
                seconds = process_time() - started
                return {
                    "method": name, "why": type(error).__name__, "seconds": seconds,
                    "warnings": named(caught),
                }  # fmt: skip
        notes = estimate.diagnostics.notes
        return {
            "method": name,
            "value": estimate.value,
            "std_error": estimate.standard_error,
            "seconds": process_time() - started,
            "monte_carlo_error": notes.get("monte_carlo_error", ""),
            "share": notes.get("most_reached", ""),
            "drift": estimate.diagnostics.drift,
            "passes": estimate.diagnostics.passes,
            "training_noise": estimate.budget.get("training", ""),
            "initialization": estimate.budget.get("initialization", ""),
            "stopped": notes.get("stopped", ""),
            "warnings": named(caught),
        }

    def second_order(self, model):
        """Shift of psi that its own bend makes of the spread of resampled fits.

        Half the trace of psi's Hessian times the sandwich, as the mean over pairs of opposite
        steps to where one Gauss-Newton step on resampled rows leads.
        """
        started, rng = process_time(), np.random.default_rng([self.seed, 13])
        share = np.full(model.n, 1 / model.n)
        score = model.score(model.theta)
        slopes = [
            reweight(model, rng.multinomial(model.n, share).astype(float)).score(model.theta)
            for _ in range(PAIRS)
        ]
        product = lambda v: model.information(model.theta, v, "ggn")
        ways = idm.conjugate_gradient(rtol=1e-2, certify=False).solve(
            product, np.column_stack(slopes) - score[:, None], floor=model.penalty.floor
        )
        here = self.cost(model)
        bends = np.array([
            (self.cost(model.at(model.theta + w)) + self.cost(model.at(model.theta - w))) / 2 - here
            for w in ways.x.T
        ])  # fmt: skip
        return {
            "method": "second order",
            "shift": float(bends.mean()),
            "monte_carlo_error": float(bends.std(ddof=1) / len(bends) ** 0.5 / bends.mean()),
            "seconds": process_time() - started,
        }

    def warm_bootstrap(self, model):
        """Replicates that are finished: up to a hundredth of a standard error, if that is known."""
        started, own = process_time(), self.setting.finish
        if own is True:
            finish = idm.lbfgs(tolerance=1e-2, max_iterations=4000)
        else:  # the gradient is not scaled to standard errors; ten times more of it may be left
            finish = replace(own, tolerance=10 * own.tolerance)
        method = idm.Bootstrap(
            self.setting.warm_replicates, rng=self.seed, curvature="ggn", maximizer=finish
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", idm.ImplicitDeltaWarning)
            estimate = idm.infer(model, self.psi, method)
        row = self.spread("warm bootstrap", estimate.draws[:, 0], process_time() - started)
        shift = float(estimate.draws.mean() - estimate.value)
        return {**row, "shift": shift, "warnings": named(caught)}

    def spread(self, name, draws, seconds):
        return {
            "method": name,
            "value": float(draws.mean()),
            "std_error": float(draws.std(ddof=1)),
            "monte_carlo_error": (2 * (draws.size - 1)) ** -0.5,
            "seconds": seconds,
            "draws": " ".join(f"{draw:.5g}" for draw in draws),
        }


def named(caught):
    """Kinds of the warnings that came, each once."""
    return " ".join(sorted({warning.category.__name__ for warning in caught}))


def largest_curvature(model):
    v, size = np.random.default_rng(0).normal(size=model.d), 1.0
    for _ in range(POWER_ITERATIONS):
        v = model.information(model.theta, v / np.linalg.norm(v), "ggn")
        size = float(np.linalg.norm(v))
    return size


def penalty_scores(split, setting, penalties, rng):
    size = len(split.y) // PARTS
    order = rng.permutation(len(split.y))[: PARTS * size].reshape(PARTS, size)
    held = order[: setting.folds]
    kept = [np.delete(order, fold, axis=0).ravel() for fold in range(setting.folds)]
    # the same strength per row as with all rows
    l2 = np.tile(penalties, setting.folds) * (PARTS - 1) / PARTS
    rows = np.repeat(kept, len(penalties), axis=0)
    modules = train(split.X, split.y, steps=setting.paper_steps // 4, rng=rng, rows=rows, l2=l2)
    scores = []
    for k, penalty in enumerate(penalties):
        pairs = zip(held, modules[k :: len(penalties)], strict=True)
        costs = np.concatenate([row_costs(m, split.X[out], split.y[out]) for out, m in pairs])
        error = costs.std() / costs.size**0.5
        scores.append({"l2": penalty, "cost": float(costs.mean()), "error": float(error)})
    return scores


@torch.no_grad()
def row_costs(module, X, y):
    outputs = module(torch.as_tensor(X, dtype=torch.float32))
    return cross_entropy(outputs, torch.as_tensor(y), reduction="none").numpy()


def choose(records, name):
    """Return the strongest penalty within one standard error of the best."""
    rows = [r for r in records if (r["dataset"], r["part"]) == (name, "penalty")]
    best = min(rows, key=lambda row: row["cost"])
    return float(max(r["l2"] for r in rows if r["cost"] <= best["cost"] + best["error"]))
