"""The paper's 1D figures: parts against closed forms, runs in miniature."""

import pytest

pytest.importorskip("experiments")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
torch = pytest.importorskip("torch")

import numpy as np

from experiments import __main__ as command
from experiments.claim import load_claims
from experiments.network import Network, as_module, descend
from experiments.one_d import (
    claims,
    claims_coverage,
    claims_public,
    convergence,
    coverage,
    fits,
    lengths,
    public,
    table,
)
from experiments.one_d.bands import Band, Training, mixture, project
from experiments.one_d.evidence import NEAR, maximize_evidence, weakest
from experiments.one_d.tasks import QUADRATIC, SIN
from experiments.records import load_records, resume, save_records
from experiments.times import whole_times

pytestmark = pytest.mark.slow

SHORT = Training(network=Network(units=4), steps=60, refit_steps=12)
COVERAGE = coverage.Config(data_sets=2, public_data_sets=2, points=3, training=SHORT)
CONVERGENCE = convergence.Config(
    sizes=(25, 30),
    lams=(0.064, 0.512),
    finite_lams=(0.512,),
    resamples=2,
    inputs=(0.5,),
    training=SHORT,
)
LENGTHS = lengths.Config(data_sets=2, points=3, steps=(30, 60), training=SHORT)
FITS = fits.Config(points=5, simulations=2, training=SHORT)


@pytest.fixture
def network():
    return Network(units=3)


@pytest.fixture
def problem(network):
    rng = np.random.default_rng(0)
    return rng.normal(size=network.d), rng.normal(size=7), rng.normal(size=7)


def test_jacobian_is_the_derivative(network, problem):
    theta, x, _ = problem
    step = 1e-6
    shifts = step * np.eye(network.d)
    central = (network.predict(theta + shifts, x) - network.predict(theta - shifts, x)) / (2 * step)
    # error of a central difference: rounding eps / step and third derivatives times step^2
    np.testing.assert_allclose(network.jacobian(theta, x), central.T, atol=1e-8)


def test_module_is_the_same_network(network, problem):
    theta, x, _ = problem
    module = as_module(network, theta)
    outputs = module(torch.tensor(x)[:, None]).detach().numpy()
    np.testing.assert_allclose(outputs, network.predict(theta, x), rtol=1e-12, atol=1e-14)
    # the module's parameters are in the order of theta
    flat = torch.cat([p.detach() for p in module.parameters()]).numpy()
    np.testing.assert_array_equal(flat, theta)


def test_pull_is_the_transposed_jacobian(network, problem):
    theta, x, r = problem
    pulled = network.pull(theta, x, network.hidden(theta, x), r)
    np.testing.assert_allclose(pulled, r @ network.jacobian(theta, x), rtol=1e-12, atol=1e-14)


def test_one_step_down_and_towards_the_push(network, problem):
    theta, x, y = problem
    x0, lam = np.array([0.3, -0.4]), np.array([0.1, 0.2])
    end, _ = descend(network, theta, x, y, rate=0.01, steps=1, push=(x0, lam))
    slope = (network.predict(theta, x) - y) @ network.jacobian(theta, x)
    reward = lam[:, None] * network.jacobian(theta, x0)
    np.testing.assert_allclose(end, theta - 0.01 * (slope - reward), rtol=1e-12)


def test_networks_that_diverge_start_again_at_half_the_rate(network, problem):
    theta, x, y = problem
    stack = np.stack([theta, theta])
    end, halvings = descend(network, stack, x, np.stack([y, 0 * y]), rate=1.0, steps=2000)
    assert np.all(np.isfinite(end))
    assert halvings[0] > 0
    slower, again = descend(network, theta, x, y, rate=0.5 ** halvings[0], steps=2000)
    assert again == 0
    np.testing.assert_array_equal(slower, end[0])


@pytest.mark.parametrize("task", [SIN, QUADRATIC], ids=lambda task: task.name)
def test_evidence_obeys_its_equations(task):
    rng = np.random.default_rng(1)
    network = Network(units=5)
    x, y = task.draw(rng)
    fit = maximize_evidence(network, x, y, network.start(rng))
    residual, rows = y - network.predict(fit.theta, x), network.jacobian(fit.theta, x)
    curvature = rows.T @ rows / fit.s2 + fit.l2 * np.eye(network.d)
    gamma = network.d - fit.l2 * np.trace(np.linalg.inv(curvature))
    assert fit.freedom == pytest.approx(x.size - gamma, rel=1e-9)
    # the alternation stops at a relative change of 1e-3
    assert fit.l2 == pytest.approx(gamma / (fit.theta @ fit.theta), rel=2e-3)
    assert fit.s2 == pytest.approx(residual @ residual / (x.size - gamma), rel=2e-3)
    slope = rows.T @ residual / fit.s2 - fit.l2 * fit.theta
    # in squared standard errors; damping of ten times the ridge may be left when it stops
    assert slope @ np.linalg.solve(curvature, slope) < 11 * NEAR**2


def test_weakest_penalty_is_weaker_and_not_refuted():
    rng = np.random.default_rng(2)
    network = Network(units=5)
    x, y = QUADRATIC.draw(rng)
    best = maximize_evidence(network, x, y, network.start(rng))
    weak = weakest(network, x, y, best)
    assert weak.l2 < best.l2
    assert weak.log_evidence >= best.log_evidence - np.log(20)


def test_mixture_of_two_points_has_their_variance():
    bands = [Band(np.array([value]), np.array([[2.0]]), 10.0) for value in (-1.0, 3.0)]
    mixed = mixture(bands)
    assert mixed.value == pytest.approx([1.0])
    assert mixed.covariance == pytest.approx(np.array([[2.0 + 2.0**2]]))
    assert mixed.freedom == 10


def test_projection_keeps_what_is_positive():
    matrix = np.diag([2.0, -1.0]) + np.array([[0.0, 0.4], [-0.4, 0.0]])
    np.testing.assert_allclose(project(matrix), np.diag([2.0, 0.0]), atol=1e-15)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_records_come_back(tmp_path, name):
    rows = [{"task": "sin", "k": 3, "x": -0.25}, {"task": "a, b", "k": 4, "note": "1 2 3"}]
    save_records(tmp_path / name, rows)
    assert load_records(tmp_path / name) == rows
    assert load_records(tmp_path / "none.csv") == []


def test_finished_jobs_are_not_computed_again(tmp_path):
    calls = []

    def compute(name, k):
        calls.append((name, k))
        if k == 2 and len(calls) == 2:
            raise KeyboardInterrupt
        return [{"value": k / 2}]

    def rows(jobs, settings="same"):
        return resume(compute, jobs, ("name", "k"), path=tmp_path / "r.csv", settings=settings)

    jobs = [("a", 1), ("a", 2)]
    with pytest.raises(KeyboardInterrupt):
        rows(jobs)
    assert [row["value"] for row in rows(jobs)] == [0.5, 1.0]
    assert calls == [("a", 1), ("a", 2), ("a", 2)]
    rows([("a", 1)], settings="other")
    assert calls[-1] == ("a", 1)


def test_times_are_those_of_all_jobs_in_whichever_run(tmp_path):
    path = tmp_path / "one_d/fits.csv.gz"
    compute = lambda name: [{"k": 1}, {"k": 2}]
    for jobs in ([("a",)], [("a",), ("b",)]):
        rows = resume(compute, jobs, ("name",), path=path)
    seconds = [row["took"] for row in rows if "took" in row]
    assert len(seconds) == 2
    (found,) = whole_times(tmp_path)
    assert (found["experiment"], found["jobs"]) == ("one_d.fits", 2)
    assert found["minutes"] == pytest.approx(sum(seconds) / 60, rel=1e-4)


def test_an_unknown_experiment_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["fits", "--results", str(tmp_path)])
    assert "no experiment called fits; there are one_d.fits" in capsys.readouterr().err


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Output of the command, all in miniature."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        for module, config in (
            (coverage, COVERAGE),
            (convergence, CONVERGENCE),
            (fits, FITS),
            (lengths, LENGTHS),
        ):
            patch.setattr(module, "QUICK", config)
        command.main(["one_d", "--quick", "--jobs", "1", "--results", str(folder)])
    return folder


def test_command_leaves_pictures_and_claims(results):
    for name in (
        "one_d/sin_fit.png",
        "one_d/cubic_fit.png",
        "one_d/convergence.png",
        "one_d/coverage.png",
        "one_d/lengths.png",
    ):
        assert (results / name).stat().st_size > 10_000
    found = load_claims(results / "one_d/claims.json")
    assert len(found) > 10
    assert all(claim.keys() == {"claim", "paper", "ours", "holds", "why"} for claim in found)


def test_coverage_has_all_methods_and_depends_on_the_seed_alone(results):
    records = load_records(results / "one_d/coverage.csv.gz")
    rows = coverage.tabulate(records)
    methods = {row["method"] for row in rows}
    assert {"idm", "literal", "delta", "gp", "mixture", "simulation"} <= methods
    assert len(rows) == 2 * COVERAGE.points * len(methods)
    assert coverage.run(COVERAGE, path=results / "one_d/coverage.csv.gz") == records
    again = coverage.one_data_set(COVERAGE, 0, "quadratic", 1)
    saved = [row for row in records if (row["task"], row["data_set"]) == ("quadratic", 1)]
    np.testing.assert_allclose(
        [row["error"] for row in saved], [row["error"] for row in again], rtol=1e-4
    )


def test_lengths_are_stages_of_one_training(results):
    """At the length of the study of coverage, on the same data, the fit is the same."""
    records = load_records(results / "one_d/lengths.csv.gz")
    assert len(records) == 2 * len(LENGTHS.steps) * LENGTHS.points * LENGTHS.data_sets
    study = load_records(results / "one_d/coverage.csv.gz")
    for method in ("idm", "delta"):
        saved, again = (
            [row for row in rows if (row["method"], row["task"]) == (method, "quadratic")]
            for rows in (study, [r for r in records if r["steps"] == SHORT.steps])
        )
        for key in ("error", "std_error"):
            np.testing.assert_allclose(
                [row[key] for row in saved], [row[key] for row in again], rtol=1e-3, atol=1e-5
            )


def test_true_noise_replaces_that_of_the_residuals(results):
    records = load_records(results / "one_d/lengths.csv.gz")
    row = {**records[0], "data_set": 0, "error": 0.15, "std_error": 0.05, "rmse": 0.05}
    for true_noise, covered in ((False, 0.0), (True, 1.0)):  # 0.05 becomes 0.1
        (table,) = lengths.tabulate([row, row], true_noise=true_noise).values()
        assert table[0]["covered"] == covered


def test_convergence_has_all_methods(results):
    table = convergence.tabulate(load_records(results / "one_d/convergence.csv.gz"))
    assert {(row["fit"], row["method"]) for row in table} >= set(convergence.STYLES)
    assert {row["lam"] for row in table if row["method"] == "idm"} == set(CONVERGENCE.lams)


@pytest.mark.parametrize("name", ["sin", "quadratic"])
def test_fits_have_covariances(results, name):
    bands = fits.bands_of(load_records(results / "one_d/fits.csv.gz"), name)
    assert set(fits.PANELS) <= set(bands)
    for band in bands.values():
        assert band.covariance.shape == (FITS.points, FITS.points)
        # written with four digits
        assert np.linalg.eigvalsh(band.covariance).min() > -1e-3 * band.covariance.max()


def test_coverage_counts_intervals_that_hold_the_truth():
    rows = [
        {
            "task": "sin",
            "method": "gp",
            "x": 0.0,
            "error": error,
            "std_error": 1.0,
            "freedom": np.inf,
        }
        for error in (-3.0, -1.9, 0.0, 1.97)
    ]
    (row,) = coverage.tabulate(rows)
    assert row["covered"] == 0.5
    assert row["binomial_error"] == 0.25
    # Student's t with 3 degrees of freedom reaches to 3.18
    (wide,) = coverage.tabulate([{**row, "freedom": 3.0} for row in rows])
    assert wide["covered"] == 1.0


def test_refusals_and_failed_fits_count_as_missed():
    common = {"task": "sin", "method": "public", "x": 0.0, "std_error": 1.0, "freedom": np.inf}
    rows = [{**common, "error": 0.0}, {**common, "error": 5.0}]
    rows += [{**common, "error": 0.0, "refused": 1}, {**common, "error": np.nan, "refused": 1}]
    answer, simulated = coverage.tabulate(rows)
    assert simulated["method"] == "simulation_public"
    assert answer["covered"] == 1 / 4
    assert answer["answered"] == 2 / 4
    assert answer["covered_answered"] == 1 / 2
    assert answer["covered_anyway"] == 2 / 3  # of the fits that there are
    assert answer["spread"] == simulated["spread"] == pytest.approx(np.std([0, 5, 0], ddof=1))


def test_regions_and_the_worst_input_are_told():
    shares = {-2.0: 0.6, -1.0: 0.9, 0.0: 0.8, 1.0: 0.95, 2.0: 0.7}
    rows = [{"task": "sin", "method": "gp", "x": x, "covered": c} for x, c in shares.items()]
    text = table.over_regions(rows, "sin", "gp")
    assert "left of the data 60, " in text
    assert ", between 80, " in text
    assert text.endswith("right of the data 70; lowest 60 at x = -2")


def test_every_point_of_the_grid_is_in_one_region():
    for task, regions in table.REGIONS.items():
        for config in (coverage.FULL, lengths.FULL):
            for x in np.linspace(-2, 2, config.points):
                rows = [{"task": task, "method": "gp", "x": x, "covered": 1.0}]
                found = [table.column(rows, task, "gp", "covered", r) for r in regions.values()]
                assert sum(map(len, found)) == 1


@pytest.mark.parametrize("task", [SIN, QUADRATIC], ids=lambda task: task.name)
def test_public_routes_agree_with_themselves_point_by_point(task):
    rng = np.random.default_rng(3)
    network, points = Network(units=3), np.array([-0.5, 0.5])
    x, y = task.draw(rng, 40)
    start = network.start(rng)
    theta, _ = descend(network, start, x, y, rate=0.5 / x.size, steps=2000)
    for make in coverage.PUBLIC.values():
        band = make(network, x, y, theta, start, points)
        single = make(network, x, y, theta, start, points[1:])
        assert band.value[1] == pytest.approx(single.value[0])
        assert band.std_error[1] == pytest.approx(single.std_error[0])
        assert np.all(abs(band.value - task.truth(points)) < 1)
    # the finished fit is at the maximum under its own penalty, which is the evidence's
    model = public._finished(network, x, y, theta, start)
    assert model.penalty.floor > 0
    assert np.linalg.norm(model.score(model.theta)) < 1e-3 * np.sqrt(model.n)


def test_fit_that_does_not_converge_has_no_interval(monkeypatch, network):
    def fail(*_):
        raise public.idm.ConvergenceError("no maximum")

    monkeypatch.setattr(public, "_finished", fail)
    band = public.public_band(network, None, None, None, None, np.zeros(2))
    assert np.all(np.isnan(band.value))
    assert not np.any(band.answered)


def test_wide_range_is_around_the_best_lambda_without_gaps():
    errors = {0.001: 1.0, 0.01: 9.0, 0.1: 1.1, 1.0: 0.9, 10.0: 1.3, 100.0: 5.0}
    assert claims._near(errors) == (0.1, 10.0)


def _table(**columns):
    """Three inputs of the sin task: standard errors of methods, and the spread of their fits."""
    return [
        {"task": "sin", "method": method, "x": float(x), "std_error": s, "spread": 1.0}
        for method, errors in columns.items()
        for x, s in zip((-2, 0, 2), errors, strict=True)
    ]


def test_agreement_is_a_comparison_and_not_with_the_own_damping():
    equal = [0.2, 0.2, 0.2]
    close = _table(literal=equal, idm=equal, delta_refit=equal, delta=[0.3] * 3, gp=[2.0] * 3)
    assert claims_coverage._same(close)["holds"]
    # the simulation is at 1: closer than the delta method damped like the fit
    apart = _table(literal=equal, idm=equal, delta_refit=equal, delta=[9.0] * 3, gp=[20.0] * 3)
    assert not claims_coverage._same(apart)["holds"]


def test_mean_does_not_hide_the_worst_input():
    rows = [
        {"task": task, "method": "public", "x": x, "covered": c, "answered": c, "data_sets": 9}
        for task in ("sin", "quadratic")
        for x, c in ((-2.0, 0.85), (0.0, 1.0), (2.0, 1.0))
    ]
    holds = {
        c["claim"].partition(", ")[2]: c["holds"]
        for c in claims_public._coverage(rows, "public", "It", lambda *_: "")
    }
    assert holds["sin: mean coverage at least 92 %"]
    assert holds["quadratic: mean coverage 95 +- 2 %"]
    assert not holds["sin: at least 90 % at every input, left and right of the data too"]
    assert not holds["quadratic: at least 90 % at every input"]


def test_rescaled_error_of_known_variances():
    common = {"n": 10, "fit": "paper", "x": 0.0}
    predictions = [
        {**common, "method": "prediction", "lam": 0.0, "resample": k, "value": value}
        for k, value in enumerate((1.0, 3.0))
    ]  # variance 2
    claims = [
        {**common, "method": "delta", "lam": 0.0, "resample": k, "value": value}
        for k, value in enumerate((2.3, 2.4))
    ]
    (row,) = convergence.tabulate(predictions + claims)
    squares = 9.0, 16.0
    assert row["rmse"] == pytest.approx(np.sqrt(12.5))
    standard_error = np.std(squares, ddof=1) / np.sqrt(2)
    assert row["error"] == pytest.approx(standard_error / (2 * np.sqrt(12.5)))


def test_what_is_not_in_the_library_is_labeled(results):
    folder = ("evidence", "weakest", "mixture")
    assert all(coverage.LABELS[method].startswith("Not in the library") for method in folder)
    for style, (_, _, label) in convergence.STYLES.items():
        assert label.startswith("Not in the library") == (style[0] == "finished")
    for found in load_claims(results / "one_d/claims.json"):
        if "Surpassed" in found["claim"]:
            assert "library's" in found["claim"]
        if "code of this folder" in found["why"]:
            assert found["claim"].startswith("Not in the library")


def test_without_records_there_are_no_claims(tmp_path):
    claims.reproduce(tmp_path)
    assert load_claims(tmp_path / "one_d/claims.json") == []
