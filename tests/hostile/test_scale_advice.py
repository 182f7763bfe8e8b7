"""Advice at scale: what a message names is not in use, and works for the case at hand."""

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.methods.replication import otherwise_of

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def network():
    """A small network whose replicates need more steps than a bootstrap takes by itself."""
    torch.manual_seed(0)
    X = torch.randn(80, 2).double()
    y = torch.sin(2 * X[:, :1]) + 0.3 * torch.randn(80, 1).double()
    net = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    model = idm.polish(idm.from_torch(net.double(), (X, y), idm.Gaussian(0.1), l2=0.1))
    return model, lambda module: module(X[:1])[0, 0]


@pytest.mark.parametrize(
    ("options", "named", "not_named"),
    [
        ({}, "maximizer=newton_krylov()`", 'kind="bayesian"'),
        ({"kind": "bayesian"}, "maximizer=newton_krylov()`", 'kind="bayesian"'),
        ({"maximizer": idm.lbfgs(max_iterations=3)}, "maximizer=newton_krylov()`", "l2="),
        (
            {"maximizer": idm.newton_krylov(max_iterations=2)},
            "newton_krylov(max_iterations=500)",
            "newton_krylov()`",
        ),
    ],
)
def test_replicates_out_of_steps_get_another_maximizer(network, options, named, not_named):
    with pytest.raises(idm.ConvergenceError, match=r"1 of the first 1 .*\(8 asked for\)") as told:
        idm.infer(*network, idm.Bootstrap(8, rng=0, **options))
    assert named in str(told.value)
    assert not_named not in str(told.value)


def test_that_maximizer_works(network):
    more = idm.newton_krylov(max_iterations=500)
    with pytest.warns(idm.ImplicitDeltaWarning):  # of few replicates
        assert idm.infer(*network, idm.Bootstrap(3, rng=0, maximizer=more)).standard_error > 0


@pytest.mark.parametrize("penalized", [False, True])
@pytest.mark.parametrize("kind", ["resample", "bayesian", "parametric", "blocks", "one-step"])
def test_advice_leaves_out_what_is_in_use(kind, penalized):
    text = otherwise_of(kind, penalized)
    assert f'kind="{kind}"' not in text
    assert ("l2=" in text) != penalized
    assert ("bayesian" in text) == (kind in ("resample", "one-step"))
    assert ("robust=True" in text) == (kind not in ("parametric", "blocks"))


def of_part(model, part):
    return part - model[0]


@pytest.mark.parametrize("ask", [idm.Average, lambda h: idm.Statistic(h, np.average)])
@pytest.mark.parametrize("h", [of_part, lambda th, rows, x=1.0: th[0] - rows])
def test_a_function_of_a_part_needs_on_shards(ask, h):
    with pytest.raises(TypeError, match=r"on_shards\(h\)"):
        ask(h)


@pytest.mark.parametrize(
    "h",
    [
        lambda th, rng: rng.normal(th[0], size=3),
        lambda th, x=2.0: th[0] * np.arange(3) * x,
        lambda *th: th[0][0] * np.arange(3),
        lambda th, *, x=1.0: th[0] * np.arange(3) * x,
        idm.on_shards(of_part),
    ],
)
def test_other_functions_do_not(h):
    assert idm.Average(h).h is h


def test_a_distributed_sampler_without_a_group_names_the_group():
    X, y = torch.randn(8, 1), torch.ones(8, 1)
    data = torch.utils.data.TensorDataset(X, y)
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
    loader = torch.utils.data.DataLoader(data, 4, sampler=sampler)
    with pytest.raises(idm.UnsupportedModelError, match=r"group=torch\.distributed\.group\.WORLD"):
        idm.from_torch(torch.nn.Linear(1, 1), loader, idm.Bernoulli())


def test_the_plan_names_walks_and_polish(caplog):
    y = np.array([3.0, 0.0, 2.0, 5.0, 1.0, 4.0, 2.0, 3.0])

    def build(rows):
        return idm.from_loglik(lambda th: y[rows] * th[0] - np.exp(th[0]), theta=[0.9])

    with caplog.at_level("INFO", logger="implicit_delta"):
        idm.from_shards(build, [slice(0, 5), slice(5, 8)])
    assert "first walk took" in caplog.text
    assert "`polish`" in caplog.text
