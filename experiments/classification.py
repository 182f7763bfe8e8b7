"""Figure "utility" and Table 1: confidence in the cost downstream of a classifier.

psi is the average cross-entropy on held-out rows. What the paper leaves open, and what is done:

- "paper": no penalty, so there is no finite maximum, and training ends after a number of steps.
  SG-FDIDM goes on from there as in Algorithm 2, with lambda 1 % of the objective and RMSProp at
  0.01, but both ends see identical minibatches. The bootstrap trains every replicate from scratch.
- "beyond": l2 is the strongest within one standard error of the best in cross-validation
  (Breiman's rule), the fit is finished with `polish` (on MNIST it is only trained: finishing it
  takes hours), and SG-FDIDM, `Infinitesimal` and its sandwich answer for the same maximum, beside
  a bootstrap whose replicates are finished too.

Seconds are of processor time, on one core. The trainings of a bootstrap run as one stack, which
takes less time than one by one; its time is that of B single trainings, as in the paper.
"""

from dataclasses import dataclass

import numpy as np
import torch

from experiments import classification_figures as figures
from experiments.classification_study import Setting, Study, choose, penalty_scores
from experiments.data import available, load_split
from experiments.records import resume, save_picture, save_records


@dataclass(frozen=True)
class Config:
    """What is run on which data set, and the penalties to choose from."""

    settings: tuple[tuple[str, Setting], ...] = (
        ("vehicle", Setting(steps=5_000, warm_replicates=60, refit_steps=600)),
        ("waveform", Setting()),
        ("satellite", Setting(
            steps=5_000, folds=2, replicates=20, warm_replicates=0, refit_steps=300, samples=20,
            finish=False,
        )),
        # A step with psi costs as much as 10 000 rows: fewer and better ones, with more rows.
        ("mnist", Setting(
            steps=600, folds=1, replicates=10, warm_replicates=0, refit_steps=25, samples=5,
            batch_size=2048, finish=False, dtype=torch.float32,
        )),
    )  # fmt: skip
    l2: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


SHORT = Setting(steps=600, folds=2, replicates=10, warm_replicates=6, refit_steps=150, samples=20)
QUICK = Config((("vehicle", SHORT), ("waveform", SHORT)), l2=(3.0, 30.0))


def run(config=Config(), seed=0, *, path=None, n_jobs=1, data=None):  # noqa: B008 (frozen)
    """Costs, standard errors, draws and times, as in the paper and beyond it.

    `path` is a directory, with two files for each data set. One that cannot be had is left out.
    """
    records = []
    for name, setting in config.settings:
        if available(name, data):
            records += run_one(name, setting, config.l2, seed, path, n_jobs, data)
    return records


def run_one(name, setting, penalties, seed, path, n_jobs, data):
    """Choose the penalty of one data set, then answer."""

    def scores(name, part):
        split, rng = _split(name, seed, data), np.random.default_rng([seed, 5])
        return penalty_scores(split, setting, penalties, rng)

    def answers(name, part):
        study = Study(setting, _split(name, seed, data), seed)
        return study.as_paper() if part == "paper" else study.beyond(choose(chosen_from, name))

    def rows(compute, parts, suffix):
        return resume(
            compute, [(name, part) for part in parts], ("dataset", "part"),
            path=path and path / f"{name}{suffix}.csv", settings=(setting, penalties, seed),
            n_jobs=n_jobs, label=name,
        )  # fmt: skip

    chosen_from = rows(scores, ("penalty",), "_l2")
    return chosen_from + rows(answers, ("paper", "beyond"), "")


def _split(name, seed, data):
    torch.set_num_threads(1)  # here, because this runs where the work is done
    return load_split(name, seed, data)


def reproduce(results, *, quick=False, seed=0, n_jobs=1, data=None):
    config = QUICK if quick else Config()
    records = run(config, seed, path=results / "classification", n_jobs=n_jobs, data=data)
    save_records(results / "classification_table.csv", figures.tabulate(records))
    save_records(results / "run_times.csv", figures.run_times(records))
    save_picture(plot(records), results / "utility.png")


def plot(records):
    return figures.plot(records)
