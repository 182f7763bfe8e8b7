"""The study of standard errors over the spread of retrainings, in miniature."""

import pytest

pytest.importorskip("experiments")
pytest.importorskip("torch")

import warnings
from dataclasses import replace
from math import isnan

import numpy as np
import torch

from experiments.command import RESULTS
from experiments.fidelity import __main__ as command
from experiments.fidelity import data, retrainings, study
from experiments.fidelity.columns import asked
from experiments.fidelity.networks import network
from experiments.fidelity.questions import auc, calibration_error, questions, squared_correlation
from experiments.fidelity.settings import SETTINGS
from experiments.fidelity.states import trained
from experiments.fidelity.table import alarms, cells, reason, summary
from experiments.fidelity.training import predictions, train
from experiments.records import load_records
from implicit_delta import DriftWarning, NotAMaximumError

NAMES = [setting.name for setting in SETTINGS]
SMALL = {s.name: replace(s, n=40, epochs=2, batch=min(s.batch, 10)) for s in SETTINGS}


@pytest.fixture(autouse=True)
def _miniature(monkeypatch):
    monkeypatch.setattr(data, "TEST", 60)
    monkeypatch.setattr(data, "POPULATION", 120)
    monkeypatch.setattr(retrainings, "CHUNK", 4)


def stack(setting, numbers):
    rows = [data.training_rows(setting, number) for number in numbers]
    orders = [data.stream(setting, "order of data", number) for number in numbers]
    return train(setting, [0] * len(rows), rows, orders)


def test_settings_meet_all_levels_of_all_factors():
    assert len(set(NAMES)) == len(SETTINGS) >= 18
    levels = {f: {getattr(s, f) for s in SETTINGS} for f in ("activation", "epochs", "outcome")}
    assert levels["activation"] == {"tanh", "relu", "gelu"}
    assert levels["epochs"] == {2, 10, 50}
    for factor in ("outcome", "activation"):  # each level with and without minibatches and decay
        for level in levels[factor]:
            those = [s for s in SETTINGS if getattr(s, factor) == level]
            assert {bool(s.batch) for s in those} == {bool(s.decay) for s in those} == {True, False}


@pytest.mark.parametrize("name", ["one_relu_adamw", "conv_relu_adam", "transformer_gelu_adam"])
def test_stack_trains_each_network_as_if_alone(name):
    setting = SMALL[name]
    together, alone = stack(setting, (0, 1, 2)).of(1), stack(setting, (1,)).of(0)
    for state, other in ((together.end, alone.end), (together.steps[0], alone.steps[0])):
        for key, value in state.items():
            torch.testing.assert_close(value, other[key], rtol=1e-3, atol=1e-5)
    assert len(together.epochs) == setting.epochs
    assert any((together.end[key] != together.start[key]).any() for key in together.end)


def test_stack_follows_a_loop_of_torch():
    setting = SMALL["one_relu_sgd"]
    rows, found = data.training_rows(setting, 0), stack(setting, (0,)).of(0)
    net = network(setting, 0)
    optimizer = torch.optim.SGD(net.parameters(), lr=setting.rate, momentum=0.9)
    rng = data.stream(setting, "order of data", 0)
    x, y = torch.as_tensor(rows.x), torch.as_tensor(rows.y)
    for _ in range(setting.epochs):
        for index in torch.as_tensor(rng.permutation(setting.n)).split(setting.batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[index]), y[index]).backward()
            optimizer.step()
    for key, value in net.state_dict().items():
        torch.testing.assert_close(found.end[key], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_answers_every_question(name):
    setting = SMALL[name]
    rows = retrainings.answers(setting, "data", 0)
    asked = [q.name for q in questions(setting, data.test_rows(setting))]
    assert {"loss", "average", "gap"} < set(asked) <= set(rows[0])
    assert all(np.isfinite(list(row.values())).all() for row in rows)
    assert rows == retrainings.answers(setting, "data", 0)


def test_kinds_change_what_they_say():
    setting = SMALL["two_relu_adam"]
    found = {kind: retrainings.answers(setting, kind, 0) for kind in retrainings.KINDS}
    losses = {kind: [row["loss"] for row in rows] for kind, rows in found.items()}
    assert len({loss for values in losses.values() for loss in values}) == 16
    same = replace(setting, batch=0)  # without minibatches a fresh order changes nothing
    assert np.ptp([row["loss"] for row in retrainings.answers(same, "order", 0)]) < 1e-5
    assert len(retrainings.chunks(same, "order")) == 0


def test_states_are_cached_until_the_setting_changes(tmp_path):
    setting = SMALL["one_tanh_adam_full"]
    first, again = trained(setting, tmp_path), trained(setting, tmp_path)
    other = trained(replace(setting, rate=0.01), tmp_path)
    key = next(iter(first[0].end))
    assert torch.equal(first[0].end[key], again[0].end[key])
    assert not torch.equal(first[0].end[key], other[0].end[key])
    assert torch.equal(first[0].end[key], first[0].steps[-1][key])
    outputs = predictions(setting, {k: v[None] for k, v in first[0].end.items()}, [[0.0] * 6])
    assert outputs.shape == (1, 1)


def test_statistics_against_pairs_bins_and_lines():
    score, y, one = np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]), np.ones(4)
    assert auc(score, y, one) == 0.75
    assert auc(score, y, np.array([1, 1, 2, 1])) == pytest.approx(4 / 6)
    assert calibration_error(np.array([0.25, 0.25, 1.0]), np.array([0, 1, 1]), np.ones(3)) == (
        pytest.approx(0.5 / 3)
    )
    assert squared_correlation(score, 3 * score - 1, one) == pytest.approx(1.0)


def test_refusals_and_warnings_are_recorded():
    def refuse():
        raise NotAMaximumError("flat")

    def warn():
        warnings.warn("drifting", DriftWarning, stacklevel=1)
        warnings.warn("not ours", UserWarning, stacklevel=1)
        raise NotAMaximumError("flat")

    assert asked(refuse)["refused"].startswith("NotAMaximumError: flat")
    assert (asked(warn)["warned"], asked(warn)["words"]) == ("DriftWarning", "drifting")


def test_ratios_of_the_table():
    setting = SMALL["one_tanh_sgd_full"]
    names = [q.name + ("_population" if q.jumps else "") for q in questions(
        setting, data.test_rows(setting))]  # fmt: skip
    rows = [{"number": k, **dict.fromkeys(names, value)} for k, value in enumerate([0.0, 2.0] * 8)]
    retrained = dict.fromkeys(retrainings.KINDS, rows) | {"order": []}
    spread = np.std([0.0, 2.0] * 8, ddof=1)
    wide = [{"question": "loss", "se": 2 * spread, "warned": "DriftWarning"}]
    quiet = [{"question": "loss", "se": spread / 2}, {"question": "loss", "refused": "no"}]
    table = list(cells(setting, retrained, {"wide": wide, "quiet": quiet}))
    loss = table[0]
    assert (loss["wide"], loss["wide_warned"], loss["wide_refused"]) == (pytest.approx(2), 1, 0)
    assert (loss["quiet"], loss["quiet_refused"]) == (pytest.approx(0.5), 0.5)
    assert loss["initialization"] == 1
    assert isnan(loss["order"])
    totals = {(row["column"], row["question"]): row for row in summary(table, ("wide", "quiet"))}
    assert totals["wide", "loss"]["silently_wrong"] == totals["wide", "loss"]["false_alarms"] == 0
    assert totals["quiet", "loss"]["silently_wrong"] == 1
    assert totals["quiet", "all"]["answered"] == 1
    assert list(alarms(table, "wide")) == [
        {"warning": "DriftWarning", "cells": 1, "false_alarms": 0}
    ]


@pytest.mark.parametrize(
    ("model", "training", "order", "expected"),
    [
        (1.8, np.nan, np.nan, "model too large: 1.80 for 1.00"),
        (0.6, 0.1, 0.8, "training too small: 0.10 for 0.80"),
        (0.2, 0.8, 0.8, "model too small: 0.20 for 0.60"),
    ],
)
def test_reason_of_a_miss_is_the_part_that_is_off(model, training, order, expected):
    row = {"way_model": model, "way_training": training, "order": order}
    assert reason(row, "way") == expected


def test_command_publishes_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "SETTINGS", tuple(SMALL[name] for name in NAMES[:2]))
    arguments = ["--results", str(tmp_path), "--cache", str(tmp_path / "cache"), "--quick",
                 "--jobs", "1", "--columns", "default"]  # fmt: skip
    command.main(arguments)
    page = (tmp_path / "fidelity" / "table.md").read_text()
    assert "| one_relu_sgd | accuracy |" in page
    printed = capsys.readouterr().out
    assert "default" in printed
    monkeypatch.setattr(retrainings, "answers", None)
    monkeypatch.setattr(study.columns, "standard_errors", None)
    command.main(arguments)
    assert capsys.readouterr().out == printed


@pytest.fixture
def published():
    """Stored tables, by name."""
    if not (RESULTS / "fidelity/summary.csv").exists():
        pytest.skip("the records are not in this copy")
    return {n: load_records(RESULTS / f"fidelity/{n}.csv") for n in ("table", "summary", "misses")}


def test_page_says_what_the_records_show_of_the_default(published):
    """docs/trust/fidelity.md: the aims, and which questions miss theirs."""
    default = {r["question"]: r for r in published["summary"] if r["column"] == "default"}
    assert default.pop("all")["fair"] >= 0.8
    means = {question: row["geometric_mean"] for question, row in default.items()}
    missed = {question for question, mean in means.items() if not 0.8 <= mean <= 1.25}
    assert missed == {"auc", "r2"}
    assert all(means[question] < 1.3 for question in missed)  # "just above"
    found = {(r["column"], r["question"]): r for r in published["summary"]}
    assert min(r["lowest"] for r in published["summary"] if r["column"] == "weights") > 2
    assert max(found["laplace", q]["geometric_mean"] for q in ("average", "share")) < 0.6
    assert found["bootstrap", "average"]["fair"] == found["bootstrap", "share"]["fair"] == 1
    assert min(found["bootstrap", q]["geometric_mean"] for q in ("loss", "auc")) > 1.3


def test_page_says_what_the_records_show_of_the_misses(published):
    steps = {s.name: s.epochs * (s.n // s.batch if s.batch else 1) for s in SETTINGS}
    wide, near, noisy, unknown = [], [], [], []
    for row in published["misses"]:
        if row["question"] in ("loss", "auc", "r2") and row["ratio"] > 1:
            wide.append(row)
        elif row["question"] in ("ece", "r2"):
            near.append(row)
        elif row["question"] == "average":
            noisy.append(row)
        else:
            unknown.append(row)
    assert all(10 <= steps[row["setting"]] <= 80 for row in wide)
    assert all("DriftWarning" in row["warned"] for row in wide)
    assert round(max(row["ratio"] for row in wide), 1) == 2.1
    short = {row["setting"] for row in wide}
    others = [r for r in published["table"] if r["setting"] in short]
    assert all(0.67 <= r["default"] <= 1.5 for r in others if r["question"] in ("average", "gap"))
    assert all(row["ratio"] < 0.67 for row in near)
    assert round(min(row["ratio"] for row in near), 1) == 0.5
    assert [row["warned"] for row in near].count("no") == 1
    assert all(row["reason"].startswith("training too large") for row in noisy)
    assert {round(row["ratio"], 1) for row in noisy} <= {1.5, 1.6}
    assert [(r["setting"], r["question"]) for r in unknown] == [("one_tanh_adam_full", "accuracy")]


def test_page_says_what_was_not_run(published):
    """Three convnets and two transformers, and so on: settings of which a column has no answer."""
    missing = {}
    for column in ("robust", "laplace", "weights"):
        none = {r["setting"] for r in published["table"] if isnan(r.get(column, np.nan))}
        missing[column] = {kind: sum(name.startswith(kind) for name in none) for kind in
                           ("conv", "transformer")}  # fmt: skip
    assert missing == {
        "robust": {"conv": 3, "transformer": 2},
        "laplace": {"conv": 3, "transformer": 4},
        "weights": {"conv": 0, "transformer": 2},
    }
