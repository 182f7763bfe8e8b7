"""Conjugate gradients on redundant columns in any units: the columns are named, and soon."""

import pytest

pytest.importorskip("torch")

import numpy as np
import torch

import implicit_delta as idm

torch.set_num_threads(1)
N, D = 600, 400


def _last_is(column):
    def change(X, rng):
        X[:, -1] = column(X, rng)

    return change


def _one_hot(X, rng):
    X[:, -4:] = np.eye(4)[rng.integers(4, size=N)]


REDUNDANT = {
    "duplicated": (_last_is(lambda X, rng: X[:, 0]), {0, D - 1}),
    "in other units": (_last_is(lambda X, rng: 1000 * X[:, 0]), {0, D - 1}),
    "negative": (_last_is(lambda X, rng: -X[:, 3]), {3, D - 1}),
    "duplicated but for rounding": (_last_is(lambda X, rng: (X[:, 0] + 0.1) - 0.1), {0, D - 1}),
    "a sum of two": (_last_is(lambda X, rng: X[:, 0] + X[:, 1]), {0, 1, D - 1}),
    "constant, with a bias": (_last_is(lambda X, rng: 1.0), {D - 1, D}),
    "one for every category, with a bias": (_one_hot, {*range(D - 4, D + 1)}),
    "never used": (_last_is(lambda X, rng: 0.0), {D - 1}),
}
UNITS = {"one unit": 0, "3 decades": 3, "9 decades": 9}


def design(kind, decades, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    units = rng.permutation(np.geomspace(1, 10.0**-decades, D))
    REDUNDANT.get(kind, (lambda X, rng: None,))[0](X, rng)
    return X * units, units


def model(X, dtype, likelihood=None):
    net = torch.nn.Linear(X.shape[1], 1, dtype=dtype)
    with torch.no_grad():
        net.weight.zero_(), net.bias.zero_()
    y = np.random.default_rng(1).normal(size=len(X))
    y = (
        y
        - np.column_stack([X, np.ones(len(X))])
        @ np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    )  # zero is the maximum
    rows = torch.tensor(X, dtype=dtype), torch.tensor(y, dtype=dtype)
    return idm.from_torch(net, rows, likelihood or idm.Gaussian(1.0), dtype=dtype)


SOLVED = idm.Infinitesimal(solver=idm.conjugate_gradient)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("kind", REDUNDANT)
def test_redundant_columns_are_refused_by_name_and_soon(kind, units, dtype):
    X, _ = design(kind, UNITS[units])
    found = model(X, dtype)
    with pytest.raises(idm.NotAMaximumError, match="no strict maximum: it is flat") as error:
        idm.infer(found, lambda net: net.weight[0, -1], SOLVED, strict=False)
    assert set(error.value.positions) == REDUNDANT[kind][1]
    # The space of all columns would take 2 D products; 16 are for the units.
    assert found.rows.passes < D + 16


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("kind", [*REDUNDANT, "independent"])
def test_what_the_data_determine_has_its_standard_error_in_any_units(kind, units):
    X, scale = design(kind, UNITS[units])
    found = model(X, torch.float64)
    estimate = idm.infer(found, lambda net: net.weight[0, 7], SOLVED, strict=False)
    one = np.column_stack([X / scale, np.ones(N)])
    exact = np.sqrt(np.linalg.pinv(one.T @ one)[7, 7]) / scale[7]
    assert estimate.standard_error == pytest.approx(exact, rel=1e-3)
    assert found.rows.passes < 2 * D + 16


@pytest.mark.filterwarnings("ignore:The model is not at:implicit_delta.DriftWarning")
def test_dead_units_are_refused_by_name_and_do_not_disturb_the_others():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 40), torch.nn.ReLU(), torch.nn.Linear(40, 1))
    net = net.double()
    with torch.no_grad():
        net[0].bias[5] = -100.0
        net[2].bias.zero_()
    X = torch.tensor(np.random.default_rng(0).normal(size=(300, 3)))
    y = net(X).detach()[:, 0] + torch.tensor(np.random.default_rng(1).normal(size=300))
    fitted = idm.from_torch(net, (X, y), idm.Gaussian(1.0))
    solved = idm.Infinitesimal(solver=idm.conjugate_gradient, curvature="ggn")
    with pytest.raises(idm.NotAMaximumError, match=r"flat.*2\.weight\[0,5\]"):
        idm.infer(fitted, lambda net: net[2].weight[0, 5], solved, strict=False)
    psi = lambda net: net(X[:5]).mean()
    exact = idm.infer(fitted, psi, idm.Infinitesimal(idm.cholesky, "ggn"), strict=False)
    assert idm.infer(fitted, psi, solved, strict=False).standard_error == pytest.approx(
        exact.standard_error, rel=2e-3
    )


class Sum(torch.nn.Module):
    def forward(self, embedded):
        return embedded.sum(dim=1)


@pytest.mark.filterwarnings("ignore:The standard error may be too small")
@pytest.mark.filterwarnings("ignore:The data vary more:implicit_delta.DispersionWarning")
def test_rows_of_an_embedding_that_are_never_used_are_refused_by_name():
    embedding = torch.nn.Embedding(300, 1, dtype=torch.float64)
    with torch.no_grad():
        embedding.weight.zero_()
    words = torch.tensor(np.random.default_rng(0).integers(0, 290, size=(900, 3)))
    y = torch.tensor(np.random.default_rng(1).normal(size=900))
    fitted = idm.from_torch(torch.nn.Sequential(embedding, Sum()), (words, y), idm.Gaussian(1.0))
    with pytest.raises(idm.NotAMaximumError, match=r"flat.*0\.weight\[295,0\]"):
        idm.infer(fitted, lambda net: net[0].weight[295, 0], SOLVED, strict=False)
    counts = np.zeros((900, 300))
    np.add.at(counts, (np.arange(900)[:, None], words.numpy()), 1.0)
    exact = np.sqrt(np.linalg.pinv(counts.T @ counts)[4, 4])
    estimate = idm.infer(fitted, lambda net: net[0].weight[4, 0], SOLVED, strict=False)
    assert estimate.standard_error == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("decades", [0, 3, 9])
def test_the_same_in_jax(decades):
    jnp = pytest.importorskip("jax.numpy")
    X, _ = design("duplicated", decades)
    fitted = idm.from_jax(
        jnp.zeros(D), (X, np.zeros(N)), idm.Gaussian(1.0), apply=lambda b, x: x @ b, dtype="float64"
    )
    with pytest.raises(idm.NotAMaximumError, match="no strict maximum: it is flat") as error:
        idm.infer(fitted, lambda b: b[-1], SOLVED, strict=False)
    assert set(error.value.positions) == {0, D - 1}
