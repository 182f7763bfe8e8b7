"""The experiments on classifiers and autoencoders, at sizes of seconds and on made-up data."""

import pytest

pytest.importorskip("experiments")
pytest.importorskip("matplotlib")
pytest.importorskip("torch")

import csv
import gzip
import re

import matplotlib as mpl
import numpy as np
import torch

from experiments import data
from experiments.claim import BEYOND, by_author, claim, load_claims, save_claims
from experiments.classification import claims as classification_claims
from experiments.classification import costs, figures, settling, study
from experiments.classification.classifier import average_cost, train, train_and_keep
from experiments.records import save_picture, save_records
from experiments.report import page as report
from experiments.vae import claims as vae_claims
from experiments.vae import reconstruction

pytestmark = pytest.mark.slow

mpl.use("Agg")
REFITS = study.Refits(batch_size=32, steps=15, samples=5, runs=2, rate=0.2, momentum=0.5)
SETTING = study.Setting(
    steps=120, paper_steps=120, folds=2, replicates=4, starts=3, warm_replicates=3,
    paper_refit_steps=15, refits=REFITS,
)  # fmt: skip
CONFIG = costs.Config((("vehicle", SETTING),), l2=(5.0, 50.0))
TINY_VAE = reconstruction.Config(
    weights=(1.0, 2.0, 5.0), fractions=(0.0, 1.0), steps=3, further_steps=2
)


def made_up(n=100):
    """Three classes that overlap, in three dimensions."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    return np.eye(3)[y] * 1.5 + rng.normal(size=(n, 3)), y


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory with made-up data under the name of a real data set, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(data.VARIABLE, raising=False)
    X, y = made_up()
    with gzip.open(tmp_path / "vehicle.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "split", "label"])
        writer.writerows([*x, "train", "uvw"[k]] for x, k in zip(X.tolist(), y, strict=True))
    return tmp_path


def test_a_directory_is_read_as_it_is(directory):
    X, y = data.load("vehicle", directory)
    np.testing.assert_array_equal(X, made_up()[0])
    np.testing.assert_array_equal(y, made_up()[1])


def test_the_directory_may_be_an_environment_variable(directory, monkeypatch):
    monkeypatch.setenv(data.VARIABLE, str(directory))
    assert data.load("vehicle")[0].shape == (100, 3)


def test_what_is_fetched_is_cached(directory, monkeypatch):
    X, y = made_up(20)
    calls = []
    monkeypatch.setattr(data, "_fetch", lambda name: calls.append(name) or (X, y))
    for _ in range(2):
        found = data.load("satellite")
        np.testing.assert_array_equal(found[0], X)
        np.testing.assert_array_equal(found[1], y)
    assert calls == ["satellite"]


def test_images_survive_the_cache(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(256, size=(5, 784)).astype(float), np.arange(5)
    data._write(tmp_path, "mnist", X, y)
    found = data.load("mnist", tmp_path)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], y)


def test_without_data_and_network_there_is_advice_and_the_rest_runs(
    directory, monkeypatch, capsys, tmp_path
):
    def offline(**options):
        raise OSError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(data.DataNotFoundError, match=r"no route to host[\s\S]*--data DIR"):
        data.load("satellite")
    reconstruction.reproduce(tmp_path)
    assert "--data DIR" in capsys.readouterr().out
    assert data.available("waveform")


def test_an_unknown_data_set_is_named():
    with pytest.raises(ValueError, match="'iris'"):
        data.load("iris")


def test_the_split_is_a_fifth_standardized_by_the_rest(directory):
    split = data.load_split("vehicle", seed=1, directory=directory)
    assert split.X.shape == (80, 3)
    assert split.X_held.shape == (20, 3)
    assert split.classes == 3
    np.testing.assert_allclose(split.X.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(split.X.std(0), 1, rtol=1e-12)


def test_generated_waveforms_have_the_means_of_their_classes():
    X, y = data.generate_waveform(20_000, np.random.default_rng(0))
    wave = {center: np.maximum(6 - abs(np.arange(1, 22) - center), 0) for center in (7, 11, 15)}
    pairs = {0: (7, 15), 1: (7, 11), 2: (15, 11)}
    for label, (first, second) in pairs.items():
        rows = X[y == label]
        # noise 1, and a share of standard deviation 1 / sqrt(12) of at most 6
        error = np.sqrt((1 + 36 / 12) / len(rows))
        expected = (wave[first] + wave[second]) / 2
        np.testing.assert_allclose(rows.mean(0), expected, atol=4.5 * error)


def test_networks_of_a_stack_are_independent():
    X, y = made_up()
    stack = {"steps": 60, "rows": np.tile(np.arange(100), (2, 1))}
    plain, other = (
        train(X, y, rng=np.random.default_rng(0), l2=(1.0, second), **stack)
        for second in (1.0, 100.0)
    )
    for one, same in zip(plain[0].parameters(), other[0].parameters(), strict=True):
        torch.testing.assert_close(one, same)
    norms = [sum(float(p.detach().square().sum()) for p in m.parameters()) for m in other]
    assert norms[1] < norms[0] / 4
    assert average_cost(X, y, torch.float32)(plain[0]) < np.log(3)


def test_what_is_kept_of_a_training_is_the_way_of_that_training():
    X, y = made_up()
    kept = train_and_keep(X, y, steps=250, rng=np.random.default_rng(0))
    (alone,) = train(X, y, steps=250, rng=np.random.default_rng(0))
    (before,) = train(X, y, steps=0, rng=np.random.default_rng(0))
    for states in ((kept.module, alone), (kept.checkpoints[-1], alone), (kept.start, before)):
        for one, other in zip(*(module.parameters() for module in states), strict=True):
            assert torch.equal(one, other)
    cost = average_cost(X, y, torch.float32)
    costs = {float(cost(module).detach()) for module in kept.checkpoints}
    assert len(costs) == 20


def test_the_strongest_penalty_within_one_standard_error_is_chosen():
    costs = {0.1: 0.50, 1.0: 0.42, 3.0: 0.43, 10.0: 0.46}
    rows = [
        {"dataset": "vehicle", "part": "penalty", "l2": l2, "cost": cost, "error": 0.02}
        for l2, cost in costs.items()
    ]
    assert study.choose(rows, "vehicle") == 3.0


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Both experiments once, with their pictures, tables and claims."""
    place = tmp_path_factory.mktemp("results")
    X, y = made_up()
    data._write(place, "vehicle", X, y)
    records = costs.run(CONFIG, 0, path=place / "classification/records", data=place)
    save_records(place / "classification/run_times.csv", figures.run_times(records))
    save_records(place / "classification/table.csv", figures.tabulate(records))
    save_picture(figures.plot(records), place / "classification/utility.png")
    images = np.random.default_rng(0).uniform(size=(40, 784))
    lines = [
        {"fraction": f, "repeat": 0, **row}
        for f in TINY_VAE.fractions
        for row in reconstruction.one_line(TINY_VAE, images, f, [0, 0])
    ]
    save_records(place / "vae/reconstruction.csv", lines)
    save_picture(reconstruction.plot(lines), place / "vae/reconstruction.png")
    return place


def test_every_method_gives_a_standard_error_and_its_time(results):
    rows = [r for part in figures.PARTS for r in data_rows(classified(results, part))]
    estimated = {(row["part"], row["method"]) for row in rows if row.get("std_error")}
    assert estimated == {
        *(("paper", "bootstrap"), ("paper", "sg")),
        *(("stopped", "stopped"), ("starts", "replicated")),
        *(("solve", method) for method in ("trained", "solve")),
        *(("refits", method) for method in ("ggn", "hessian", "sg")),
        *(("finished", method) for method in ("hessian", "robust", "warm bootstrap")),
    }
    assert all(float(row["seconds"]) > 0 for row in rows)
    assert all(float(row["std_error"]) > 0 for row in rows if row.get("std_error"))


def test_psi_is_settled_where_the_solve_starts_and_at_rest_where_the_refits_do(results):
    parts = ("solve", "refits")
    solve, refits = ({r["method"]: r for r in data_rows(classified(results, p))} for p in parts)
    assert float(solve["settle"]["drift"]) <= study.DRIFT_WARNS
    assert float(solve["solve"]["drift"]) <= study.DRIFT_WARNS
    assert solve["solve"]["warnings"] == ""
    assert float(refits["polish"]["drift"]) <= 0.01


def test_warnings_and_refusals_are_recorded():
    """A training of few steps is far from its maximum, and of none is farther."""
    X, y = made_up(150)
    one = study.Study(study.Setting(), data.Split(X[:100], y[:100], X[100:], y[100:]), 0)
    warned, refused = (
        one.estimate("trained", one.trained(5.0, steps)[0], study.TO_ONE_PERCENT)
        for steps in (15, 0)
    )
    assert "DriftWarning" in warned["warnings"]
    assert refused["why"] == "ConvergenceError"


def test_every_stage_that_a_method_needs_is_in_its_time():
    """Polish may decide over the verdict, and a warning of the solve too."""
    stages = {
        "solve": {"training": 10.0, "settle": 0.5, "solve": 0.4, "trained": 0.1},
        "refits": {"training": 10.0, "polish": 3.0, "climb": 1.5, "ggn": 2.0, "sg": 11.0},
        **{part: {"training": 1.0} for part in ("paper", "stopped", "starts", "finished")},
    }
    rows = {
        (part, method): made_up_row(part, method, seconds=seconds)
        for part, methods in stages.items()
        for method, seconds in methods.items()
    }
    (times,) = figures.run_times(rows.values())
    assert times["polish"] == 4.5
    assert times["sg_without_polish_times_faster"] == pytest.approx(500 / 21)
    assert times["sg_total_times_faster"] == pytest.approx(500 / 25.5)
    assert times["solve_with_polish_times_faster"] == pytest.approx(500 / 0.9)
    assert times["solve_total_times_faster"] == pytest.approx(500 / 10.9)
    assert times["solve_at_rest_times_faster"] == pytest.approx(500 / 5.0)
    assert verdicts(rows) == [False, True]  # 23.8 times would do, 19.6 do not
    assert verdicts(rows, ("refits", "polish"), seconds=1.0) == [True, True]
    assert verdicts(rows, ("solve", "settle"), seconds=0.7) == [False, False]
    assert verdicts(rows, ("solve", "solve"), warnings="DriftWarning") == [False, False]


def made_up_row(part, method, **more):
    row = {"value": 0.4, "std_error": 0.1, "drift": 0.2, "moved": 0.1, "passes": 9, "seconds": 1.0}
    return {"dataset": "vehicle", "part": part, "method": method, **row, **more}


def verdicts(rows, changed=None, **more):
    """Verdicts on the times, with one of the rows changed."""
    records = [{**row, **more} if key == changed else row for key, row in rows.items()]
    return [each["holds"] for each in classification_claims.claims_on_times(records)]


def test_a_bootstrap_that_sits_elsewhere_is_told_in_its_own_standard_errors():
    bend = made_up_row("refits", "second order", shift=0.25, monte_carlo_error=0.1)
    warm = made_up_row("finished", "warm bootstrap", shift=0.3, monte_carlo_error=0.05)
    robust = made_up_row("finished", "robust", std_error=0.11)
    rows = {"warm bootstrap": warm, "robust": robust, "hessian": warm}
    found = classification_claims._width("vehicle", rows, bend)
    assert found["holds"]
    assert "+3.0 of their standard errors" in found["ours"]
    assert "+0.25 ± 0.03" in found["why"]


@pytest.mark.parametrize(("error", "holds"), [(0.066, False), (0.068, True), (0.151, False)])
def test_the_error_of_a_stopped_training_is_held_against_the_trainings_from_scratch(error, holds):
    row = made_up_row("stopped", "stopped", std_error=error, stopped="ridge 1")
    bootstrap = made_up_row("paper", "bootstrap", value=0.6, monte_carlo_error=0.1)
    found = classification_claims._as_stopped("vehicle", row, bootstrap)
    assert found["holds"] is holds
    assert "+2.0 of their standard errors" in found["ours"]
    assert found["paper"] == BEYOND


def test_the_second_order_shift_is_half_a_trace(monkeypatch):
    """Of psi's Hessian times the covariance of one Gauss-Newton step on resampled rows."""
    monkeypatch.setattr(study, "PAIRS", 200)
    X, y = made_up(150)
    one = study.Study(study.Setting(), data.Split(X[:100], y[:100], X[100:], y[100:]), 0)
    model = one.maximum(one.trained(20.0, 300)[0])
    theta, unit = model.theta, np.eye(model.d)
    slope = lambda theta: model.jacobian(one.psi, theta)[0]
    bend = np.array([slope(theta + 1e-4 * e) - slope(theta - 1e-4 * e) for e in unit]) / 2e-4
    inverse = np.linalg.inv(model.information(theta, unit, "ggn"))
    rows = model.terms_along(theta, inverse)
    rows = rows - rows.mean(axis=0)
    found = one.second_order(model)
    error = found["shift"] * found["monte_carlo_error"]
    # 4 Monte-Carlo errors, and the fourth order of steps that are short
    expected = np.trace(bend @ (rows.T @ rows)) / 2
    assert found["shift"] == pytest.approx(expected, abs=4 * error + 0.1 * expected)
    assert error < 0.1 * expected


def classified(results, part):
    return results / "classification/records" / f"vehicle_{part}.csv"


def data_rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_finished_records_are_not_recomputed(results, monkeypatch):
    monkeypatch.setattr(costs, "Study", None)
    monkeypatch.setattr(costs, "penalty_scores", None)
    records = costs.run(CONFIG, 0, path=results / "classification/records", data=results)
    parts = ("penalty", *figures.PARTS)
    assert len(records) == sum(len(data_rows(classified(results, part))) for part in parts)


def test_claims_are_complete(results):
    classification_claims.reproduce(results)
    vae_claims.reproduce(results)
    parts = [
        load_claims(results / name) for name in ("classification/claims.json", "vae/claims.json")
    ]
    assert all(set(c) == {"claim", "paper", "ours", "holds", "why"} for part in parts for c in part)
    assert len(parts[0]) == 9
    assert len(parts[1]) == 6


def test_the_report_is_one_page_with_everything_in_it(results):
    save_claims(results / "one_d/claims.json", [claim("a < b", "yes", "no", False, "")])
    report.reproduce(results)
    page = (results / "index.html").read_text(encoding="utf-8")
    assert "a &lt; b" in page
    # of classification and VAE, and how the benchmarks grow
    assert page.count("data:image/png;base64,") == 3
    assert "one_d/sin_fit.png has not been made yet" in page
    assert "results/coverage/table.csv is not there yet" in page
    assert "http" not in page
    assert "$" not in page


def test_the_tiles_of_the_report_tell_the_papers_claims_from_our_own():
    of_paper = [claim("a", "yes", "", held, "") for held in (True, False, False)]
    own = [claim("b", f"{BEYOND}, which has c", "", held, "") for held in (True, True, True, False)]
    tiles = report.tally(*by_author(own + of_paper))
    found = re.findall(r'href="#(.*?)"><b>(.*?)</b>claims of (the paper|our own)', tiles)
    assert found == [
        ("paper-hold", "1 of 3", "the paper"),
        ("paper-do-not-hold", "2 of 3", "the paper"),
        ("own-hold", "3 of 4", "our own"),
        ("own-do-not-hold", "1 of 4", "our own"),
    ]


def test_every_tile_of_the_report_leads_to_its_table(results):
    page = report.page(results)
    targets = re.findall(r'<a class="\w+" href="#(.*?)"', page)
    assert len(targets) >= 4
    assert all(page.count(f'id="{target}"') == 1 for target in targets)


def test_an_experiment_without_times_says_so(tmp_path):
    rows = [{"fraction": f, "repeat": 0, "took": 90.0} for f in (0.0, 0.5)]
    save_records(tmp_path / "vae/reconstruction.csv", rows)
    assert ">3.0<" in report.times(tmp_path)
    save_records(tmp_path / "vae/reconstruction.csv", [*rows, {"fraction": 1.0, "repeat": 0}])
    assert ">3.0<" not in report.times(tmp_path)
    assert ">not recorded<" in report.times(tmp_path)


def test_settling_is_the_recursion_in_the_parameters():
    """Lanczos's matrix gives the variance along g, and the same response after few steps."""
    rng = np.random.default_rng(0)
    root, g = rng.normal(size=(12, 12)), rng.normal(size=12)
    A = root @ root.T + np.eye(12)
    spectrum = settling.Spectrum.of(lambda v: A @ v, g)
    exact = g @ np.linalg.solve(A, g)
    assert spectrum.variance == pytest.approx(exact, rel=1e-9)
    refits, rate = study.Refits(steps=40, samples=5, momentum=0.8), 0.003
    theta, speed, total = np.zeros(12), np.zeros(12), 0.0
    for step in range(45):
        speed = 0.8 * speed + g - A @ theta
        theta = theta + rate * min(1.0, (1 - step / 45) / 0.3) * speed
        total += g @ theta * (step >= 40)
    assert total / 5 < 0.9 * exact
    assert spectrum.reached(refits, rate) == pytest.approx((total / 5 / exact) ** 0.5, rel=1e-9)


def test_settling_is_printed_for_a_data_set(directory, monkeypatch, capsys):
    monkeypatch.setattr(settling, "FULL", CONFIG)
    settling.main(["vehicle", "--data", str(directory), "--results", str(directory)])
    assert "vehicle: standard error 0.0" in capsys.readouterr().out
