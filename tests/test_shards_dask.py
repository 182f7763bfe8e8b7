"""Shards on a Dask cluster of two processes: the answers of one process, whatever happens."""

import os
import signal
import threading
import time

import joblib
import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.processes import processes_of
from implicit_delta.models.resampling import resampled
from implicit_delta.models.sharded import rows as sharded

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.xdist_group("dask"),
    pytest.mark.filterwarnings("ignore::implicit_delta.ImplicitDeltaWarning"),
]

N = 240
rng = np.random.default_rng(8)
X = np.column_stack([np.ones(N), rng.normal(size=(N, 2))])
Y = rng.poisson(np.exp(X @ [0.4, 0.3, -0.2])).astype(float)
TABLE = np.column_stack([Y, X])
VILLAGE = rng.integers(0, 20, N)
CUTS = {1: [0, N], 2: [0, 60, N], 5: [0, 9, 40, 41, 170, N]}
OPTIONS = {"l2": 0.5}


def builder(theta, pause=0.0, table=TABLE, **options):
    """Nested functions travel to the workers by value."""

    def build(part):
        rows = table[part] if isinstance(part, slice) else np.asarray(part, dtype=float)
        y, x = rows[:, 0], rows[:, 1:]

        def loglik(t):
            time.sleep(pause)
            return y * (x @ t) - np.exp(x @ t)

        def score(t):
            return (y - np.exp(x @ t))[:, None] * x

        return idm.from_loglik(loglik, theta, score=score, **(options or OPTIONS))

    return build


def parts_of(k):
    return [slice(a, b) for a, b in zip(CUTS[k][:-1], CUTS[k][1:], strict=True)]


ROUGH = builder(np.full(3, 0.1))(slice(0, N))
THETA = np.asarray(idm.polish(idm.polish(ROUGH)).theta)
ONE = builder(THETA)(slice(0, N))


def rate(theta):
    return np.exp(theta[0] + theta[1])


@pytest.fixture(scope="module")
def client():
    cluster = distributed.LocalCluster(
        n_workers=2, processes=True, threads_per_worker=1, dashboard_address=":0"
    )
    with cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        yield client


def same(one, many, tolerance=1e-10):
    np.testing.assert_allclose(many.value, one.value, rtol=tolerance)
    np.testing.assert_allclose(many.standard_error, one.standard_error, rtol=tolerance)


QUESTIONS = {
    "model": {},
    "robust": {"robust": True},
    "clusters": {"clusters": VILLAGE},
    "influence": {"influence": True},
}


@pytest.mark.parametrize("k", CUTS)
def test_answers_are_those_of_one_process(client, k):
    many = idm.from_shards(builder(THETA), parts_of(k), client=client)
    for options in QUESTIONS.values():
        one, asked = (idm.infer(model, rate, **options) for model in (ONE, many))
        same(one, asked)
        assert asked.diagnostics.notes["shards"] == k
        assert asked.diagnostics.notes["sent"] > 0
    average = idm.Average(lambda theta: np.exp(X[:50] @ theta))
    same(*(idm.infer(model, average) for model in (ONE, many)))
    ends = [idm.profile(model, rate).interval for model in (ONE, many)]
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-10)
    away = [np.asarray(idm.polish(model.at(THETA + 0.1)).theta) for model in (ONE, many)]
    np.testing.assert_allclose(away[1], away[0], rtol=1e-9)


def test_bootstraps_draw_the_same_rows(client):
    many = idm.from_shards(builder(THETA), parts_of(5), client=client)
    method = idm.Bootstrap(4, rng=1)
    same(*(idm.infer(model, rate, method) for model in (ONE, many)), 1e-6)


@pytest.mark.parametrize("options", [{}, {"clusters": VILLAGE}], ids=str)
def test_very_many_rows_are_drawn_by_the_workers(client, monkeypatch, options):
    monkeypatch.setattr(sharded, "DRAWN_HERE", 0)
    models = [
        idm.from_shards(builder(THETA), parts_of(5), client=client),
        idm.from_shards(builder(THETA), parts_of(1)),
    ]
    many, one = (idm.infer(model, rate, idm.Bootstrap(8, rng=1), **options) for model in models)
    np.testing.assert_allclose(many.draws, one.draws, rtol=1e-6)
    traffic = processes_of(models[0]).traffic
    before = traffic.sent
    resampled(models[0], "resample", np.random.default_rng(0))
    assert traffic.sent - before <= 8 * 5  # where its rows begin, for each shard


def test_sums_and_the_strongest_rows_come_back(client):
    def price(theta, part):
        return np.exp(X[part] @ theta)

    average = idm.Average(lambda theta: price(theta, slice(0, N)))
    model = idm.from_shards(builder(THETA), parts_of(5), client=client)
    est = idm.infer(model, idm.Average(idm.on_shards(price)))
    same(idm.infer(ONE, average), est)
    every = idm.infer(model, idm.Average(idm.on_shards(lambda t, part: price(t, part)[::2])))
    received = [found.diagnostics.notes["received"] for found in (est, every)]
    assert received[0] == received[1] > 0  # whatever the number of rows
    top = est.top_influence(4)
    known = idm.infer(ONE, average, influence=True).top_influence(4)
    assert list(top.row) == list(known.row)
    np.testing.assert_allclose(top.influence, known.influence, rtol=1e-8)


def test_partitions_delayed_objects_and_files_are_parts(client, tmp_path):
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE, columns=list("yabc"))
    sources = {
        "array": array.from_array(TABLE, chunks=(100, 4)),
        "delayed": [dask.delayed(np.array)(TABLE[rows]) for rows in parts_of(2)],
        "futures": client.scatter([TABLE[rows] for rows in parts_of(2)]),
    }
    dataframe = pytest.importorskip("dask.dataframe")
    sources["frame"] = dataframe.from_pandas(frame, npartitions=3)
    for name, parts in sources.items():
        many = idm.from_shards(builder(THETA), parts, client=client)
        same(idm.infer(ONE, rate), idm.infer(many, rate))
        assert many.n == N, name
    for i, rows in enumerate(parts_of(5)):
        frame[rows].to_parquet(tmp_path / f"{i}.parquet")

    build = builder(THETA)

    def read(path):
        import pandas

        return build(pandas.read_parquet(path))

    many = idm.from_shards(read, sorted(tmp_path.glob("*.parquet")), client=client)
    same(idm.infer(ONE, rate), idm.infer(many, rate))


def test_pairs_of_delayed_objects_are_a_part(client):
    dask = pytest.importorskip("dask")
    pairs = [(dask.delayed(X[rows]), dask.delayed(Y[rows])) for rows in parts_of(2)]

    of_table = builder(THETA)

    def build(pair):
        return of_table(np.column_stack([pair[1], pair[0]]))

    many = idm.from_shards(build, pairs, client=client)
    same(idm.infer(ONE, rate), idm.infer(many, rate))


def test_a_worker_that_dies_in_the_middle_changes_nothing(client):
    many = idm.from_shards(builder(THETA, pause=0.02), parts_of(5), client=client)
    before = set(client.run(os.getpid).values())
    victim = min(before)
    killer = threading.Timer(0.3, os.kill, (victim, signal.SIGKILL))
    killer.start()
    answers = [idm.infer(many, rate, robust=True)]
    killer.join()
    answers.append(idm.infer(many, rate, robust=True))
    client.wait_for_workers(2, timeout=60)
    assert victim not in client.run(os.getpid).values()
    for answer in answers:
        same(idm.infer(ONE, rate, robust=True), answer)


def test_fits_run_on_the_client_by_joblib(client):
    method = idm.Bootstrap(12, rng=3, n_jobs=2)
    alone = idm.infer(ONE, rate, idm.Bootstrap(12, rng=3))
    with joblib.parallel_config("dask"):
        same(alone, idm.infer(ONE, rate, method))


def test_refits_run_on_the_client_by_joblib(client):
    one, found = ONE, []

    def again(bonus):
        from scipy.optimize import minimize

        return minimize(lambda t: -one.objective(t) - float(bonus(t)), THETA, tol=1e-12).x

    for n_jobs in (1, 2):
        with joblib.parallel_config("dask" if n_jobs == 2 else "loky"):
            found.append(idm.refit(again, rate, n_jobs=n_jobs))
    same(*found, 1e-9)


def holes():
    table = TABLE.copy()
    table[100, 2] = np.nan
    return table


def other(part):
    width = 4 if part.start == 0 else 3
    return builder(THETA[: width - 1], table=TABLE[:, :width])(part)


def raising(part):
    if part.start:
        raise KeyError("village")
    return builder(THETA)(part)


FAULTS = {
    "raises": (lambda: raising, parts_of(2), "part 1 .*KeyError: 'village'"),
    "no model": (lambda: lambda part: None, parts_of(2), "returned NoneType for part 0"),
    "empty": (lambda: builder(THETA), [slice(0, N), slice(N, N)], "part 1"),
    "holes": (lambda: builder(THETA, table=holes()), parts_of(5), "part 3"),
    "other columns": (lambda: other, parts_of(2), "part 1"),
    "no file": (lambda: np.load, ["none.npy", "other.npy"], r"part 0 \(none.npy\).*No such file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_the_part(client, fault):
    make, parts, text = FAULTS[fault]
    build, started = make(), time.monotonic()

    def travels(part):
        return build(part)

    with pytest.raises((ValueError, TypeError, idm.ImplicitDeltaError), match=f"(?s){text}"):
        idm.from_shards(travels, parts, client=client)
    assert time.monotonic() - started < 60


def test_bad_clients_and_parts_are_refused(client):
    with pytest.raises(TypeError, match=r"from dask\.distributed import Client"):
        idm.from_shards(builder(THETA), parts_of(2), client="tcp://10.0.0.1:8786")
    array = pytest.importorskip("dask.array")
    parts = array.from_array(TABLE, chunks=(100, 2))
    with pytest.raises(ValueError, match=r"2 chunks across its columns.*rechunk"):
        idm.from_shards(builder(THETA), parts, client=client)
    many = idm.from_shards(builder(THETA), parts_of(2), client=client)
    with pytest.raises(idm.UnsupportedModelError, match="n_jobs=1"):
        idm.infer(many, rate, idm.Bootstrap(4, rng=0, n_jobs=2))


def test_a_closed_client_is_named(client):
    with distributed.Client(client.cluster) as other:
        many = idm.from_shards(builder(THETA), parts_of(2), client=other)
    with pytest.raises(idm.ImplicitDeltaError, match="client of this model is closed"):
        idm.infer(many, rate)


def test_a_cluster_without_workers_is_given_up(monkeypatch):
    from implicit_delta.models.sharded import dask as engine

    monkeypatch.setattr(engine, "PATIENCE", 1.0)
    cluster = distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    with (
        cluster,
        distributed.Client(cluster) as lonely,
        pytest.raises(idm.ImplicitDeltaError, match="no worker for 1 s"),
    ):
        idm.from_shards(builder(THETA), parts_of(2), client=lonely)


class Odd(Exception):
    """An error that is pickled and cannot be unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class OddOfOurs(idm.ImplicitDeltaError):
    """The same, of a class that is passed on."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def failing(kind):
    def fail(part):
        raise kind("this", "that")

    return fail


@pytest.mark.parametrize("kind", [Odd, OddOfOurs])
def test_errors_that_do_not_travel_leave_their_text(client, kind):
    fail = failing(kind)
    with pytest.raises((ValueError, idm.ImplicitDeltaError), match=r"part 0 .*this and that"):
        idm.from_shards(fail, parts_of(2), client=client)
    many = idm.from_shards(builder(THETA), parts_of(2), client=client)
    with pytest.raises(idm.ImplicitDeltaError, match="this and that"):
        idm.infer(many, lambda theta: fail(theta))
    average = idm.Average(idm.on_shards(lambda theta, part: fail(part)))
    with pytest.raises((ValueError, idm.ImplicitDeltaError), match=r"part 0 .*this and that"):
        idm.infer(many, average)


def test_what_cannot_be_sent_is_refused_by_name(client):
    lock, build = threading.Lock(), builder(THETA)
    with pytest.raises(TypeError, match=r"build cannot be sent.*lock.*inside of build"):
        idm.from_shards(lambda part: (build(part), lock)[0], parts_of(2), client=client)
    with pytest.raises(TypeError, match=r"part 1 \(lock\) cannot be sent"):
        idm.from_shards(build, [slice(0, 9), lock], client=client)
    many = idm.from_shards(build, parts_of(2), client=client)
    with pytest.raises(TypeError, match=r"psi cannot be sent.*lock.*inside of psi"):
        idm.infer(many, lambda theta: (theta[0], lock)[0])
    with pytest.raises(TypeError, match="psi returned what cannot be sent"):
        idm.infer(many, lambda theta: (number for number in theta))


def test_a_client_that_is_closed_before_is_named(client):
    with distributed.Client(client.cluster) as other:
        pass
    with pytest.raises(idm.ImplicitDeltaError, match="client of this model is closed"):
        idm.from_shards(builder(THETA), parts_of(2), client=other)


def test_a_large_psi_is_sent_once_and_counted(client, recwarn):
    many = idm.from_shards(builder(THETA), parts_of(2), client=client)
    heavy = np.zeros(2_000_000)
    found = idm.infer(many, lambda theta: rate(theta) + heavy[0])
    same(idm.infer(ONE, rate), found)
    assert heavy.nbytes < found.diagnostics.notes["sent"] < 2 * heavy.nbytes
    assert not [w for w in recwarn if "large graph" in str(w.message)]
