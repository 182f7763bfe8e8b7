"""States of a training that are not what they should be, and questions that fail at them."""

import copy

import numpy as np
import pytest

import implicit_delta as idm
from implicit_delta.models.outputs import tangent_model

torch = pytest.importorskip("torch")
nn = torch.nn

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 2, generator=GENERATOR, dtype=torch.float64)
Y = X @ torch.tensor([[1.0], [-1.0]]).double() + torch.randn(60, 1, generator=GENERATOR).double()
NET = nn.Linear(2, 1).double()


def fitted(net=None, **options):
    return idm.polish(idm.from_torch(net or NET, (X, Y), idm.Gaussian(1.0), **options))


TRAINED = fitted().module  # at the maximum, so that every refusal is due to the states


def model(**options):
    return idm.from_torch(TRAINED, (X, Y), idm.Gaussian(1.0), **options)


def moved(seed, scale=0.01):
    net, generator = copy.deepcopy(TRAINED), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in net.parameters():
            p += scale * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    return net


def good(count=6, scale=0.01):
    return [copy.deepcopy(moved(seed, scale).state_dict()) for seed in range(count)]


def with_entry(name, value):
    given = good()
    given[2][name] = value
    return given


def without(name):
    return [{k: v for k, v in state.items() if k != name} for state in good()]


def live():
    """The classic mistake: the dictionaries share the tensors of the module."""
    return [TRAINED.state_dict() for _ in range(5)]


def shallow():
    return [dict(TRAINED.state_dict()) for _ in range(5)]


def parameters():
    return [list(TRAINED.parameters()) for _ in range(5)]


BAD = {
    "live state_dicts": (live, ValueError, r"the model itself.*copy\.deepcopy"),
    "shallow copies": (shallow, ValueError, r"the model itself.*v\.clone"),
    "live parameters": (parameters, ValueError, r"the model itself.*copy\.deepcopy"),
    "the module five times": (lambda: [TRAINED] * 5, ValueError, r"deepcopy"),
    "one other state five times": (lambda: [good()[0]] * 5, ValueError, "one and the same state"),
    "one state_dict": (lambda: good()[0], TypeError, "must be a list of state_dicts or modules"),
    "one module": (lambda: moved(0), TypeError, "must be a list"),
    "a tensor": (lambda: torch.zeros(4, 3), TypeError, "must be a list"),
    "a path": (lambda: "checkpoint.pt", TypeError, "must be a list"),
    "paths": (lambda: ["a.pt", "b.pt", "c.pt"], TypeError, r"checkpoints\[0\] is a str"),
    "a number": (lambda: 5, TypeError, "must be a list"),
    "none": (list, ValueError, "at least 3"),
    "two": (lambda: good(2), ValueError, "at least 3"),
    "saved twice": (lambda: [*good(3), *good(3)[2:]], ValueError, "saved twice"),
    "a name is missing": (lambda: without("bias"), ValueError, "no parameter 'bias'"),
    "another module": (lambda: [nn.Linear(3, 1)] * 4, ValueError, "same architecture"),
    "other names": (
        lambda: [{"kernel": s["weight"], "offset": s["bias"]} for s in good()],
        ValueError,
        "It has kernel, offset; the model has weight, bias",
    ),
    "another shape": (
        lambda: with_entry("weight", torch.zeros(1, 3)),
        ValueError,
        r"weight has shape \(1, 3\) in checkpoints\[2\], and \(1, 2\)",
    ),
    "NaN": (lambda: with_entry("bias", torch.tensor([np.nan])), ValueError, r"\[2\].*diverged"),
    "infinite": (lambda: with_entry("bias", torch.tensor([np.inf])), ValueError, "diverged"),
    "whole checkpoints": (
        lambda: [{"model": state, "optimizer": {}, "epoch": 3} for state in good()],
        ValueError,
        r"\[checkpoint\['model'\] for checkpoint",
    ),
    "Lightning checkpoints": (
        lambda: [{"state_dict": {f"net.{k}": v for k, v in s.items()}} for s in good()],
        ValueError,
        r"checkpoint\['state_dict'\]",
    ),
    "two networks in one state": (
        lambda: [
            {f"{who}.{k}": v for who in ("student", "teacher") for k, v in s.items()}
            for s in good()
        ],
        ValueError,
        r"under 'student\.' and under 'teacher\.'",
    ),
    "too many parameters": (
        lambda: [[*moved(i).parameters(), torch.zeros(1)] for i in range(4)],
        ValueError,
        "has 3 parameters, and the module 2",
    ),
    "arrays": (
        lambda: [[p.detach().numpy() for p in moved(i).parameters()] for i in range(4)],
        TypeError,
        r"p\.detach\(\)\.clone\(\)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_checkpoints_are_refused(case):
    make, error, text = BAD[case]
    with pytest.raises(error, match=f"(?s){text}"):
        model(checkpoints=make())


REPLICATES = {
    "one": (lambda: good(1), "at least 2"),
    "the model among them": (lambda: [moved(0), TRAINED], r"replicates\[1\] is the model itself"),
    "one seed twice": (lambda: [moved(0), moved(1), moved(0)], "one seed used for both"),
    "diverged": (lambda: with_entry("bias", torch.tensor([np.nan])), "diverged"),
    "all the model": (live, "All 5 replicates are the model itself"),
}


@pytest.mark.parametrize("case", REPLICATES)
def test_bad_replicates_are_refused(case):
    make, text = REPLICATES[case]
    with pytest.raises(ValueError, match=text):
        model(replicates=make())


BASELINE = TRAINED.weight[0, 0].detach().clone()


def fragile(net):
    """NaN wherever the first weight is below that of the model."""
    return torch.sqrt(net.weight[0, 0] - float(BASELINE) + 1e-3)


def test_a_psi_that_fails_at_a_state_says_so():
    with pytest.raises(idm.EvaluationError, match="At one of the checkpoints: psi is NaN"):
        idm.infer(model(checkpoints=good()), fragile)


def test_a_psi_that_stays_the_same_over_the_states_has_no_noise():
    given = good()
    for state in given:
        state["bias"] = TRAINED.bias.detach().clone()
    est = idm.infer(model(checkpoints=given), lambda net: net.bias.squeeze())
    assert est.budget["training"] == 0
    assert est.df == np.inf
    assert est.standard_error == pytest.approx(est.budget["model"])


LAWS = {"scaled": (3.0, 0.0), "shifted": (1.0, 100.0), "turned": (-1.0, 2.0), "tiny": (1e-8, 0.0)}


@pytest.mark.parametrize("law", LAWS)
def test_units_of_psi_do_not_matter(law):
    a, b = LAWS[law]
    states = good(20)
    plain, other = (
        idm.infer(model(checkpoints=states), psi).budget["training"]
        for psi in (
            lambda net: net.bias.squeeze(),
            lambda net: a * net.bias.squeeze() + b,
        )
    )
    assert other == pytest.approx(abs(a) * plain, rel=1e-6)


def test_the_order_of_time_counts_in_either_direction_alike():
    states = good(20)
    errors = [
        idm.infer(model(checkpoints=given), lambda net: net.bias.squeeze()).budget["training"]
        for given in (states, states[::-1])
    ]
    assert errors[0] == pytest.approx(errors[1])


def test_what_was_given_is_not_changed_and_later_changes_do_not_matter():
    states = good()
    before = copy.deepcopy(states)
    fit = model(checkpoints=states)
    first = idm.infer(fit, lambda net: net.bias.squeeze()).budget["training"]
    assert all(torch.equal(a[k], b[k]) for a, b in zip(states, before, strict=True) for k in a)
    for state in states:
        state["bias"].mul_(100)
    assert idm.infer(fit, lambda net: net.bias.squeeze()).budget["training"] == first


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_states_in_half_precision(dtype):
    half = copy.deepcopy(TRAINED).to(dtype)
    given = [moved(i, 0.3).to(dtype).state_dict() for i in range(5)]
    fit = idm.from_torch(half, (X, Y), idm.Gaussian(1.0), dtype=torch.float64, checkpoints=given)
    assert fit.facts.training.checkpoints.dtype == np.float64
    assert fit.facts.training.checkpoints[1, 2] == float(given[1]["bias"][0])


SETTINGS = {
    "no noise": ({"batch_size": 60}, "no noise of minibatches"),
    "more than all": ({"batch_size": 100}, "no noise of minibatches"),
    "empty batches": ({"batch_size": 0}, "batch_size must be an integer from 1 on"),
    "two steps": ({"batch_size": 10, "steps": 2}, "steps must be an integer from 3 on"),
    "half a step": ({"batch_size": 10, "steps": 8.5}, "steps must be an integer"),
    "every zeroth": ({"batch_size": 10, "every": 0}, "every must be an integer from 1 on"),
    "backwards": ({"batch_size": 10, "warmup": -1}, "warmup must be an integer from 0 on"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_of_a_continued_training(case):
    options, text = SETTINGS[case]
    with pytest.raises(ValueError, match=text):
        idm.continue_training(model(), 0.01, **options)


def test_a_rate_that_diverges_is_named():
    with pytest.raises(idm.ConvergenceError, match="smaller learning rate"):
        idm.continue_training(model(), 1e200, batch_size=10)


def test_models_without_minibatches():
    y = np.arange(5.0)
    fit = idm.from_loglik(lambda m: -((y - m[0]) ** 2) / 2, start=[0.0])
    for call in (lambda: idm.averaged(fit), lambda: idm.continue_training(fit, 1.0, batch_size=2)):
        with pytest.raises(idm.UnsupportedModelError, match="has no minibatches"):
            call()
    with pytest.raises(TypeError, match="needs a fitted model"):
        idm.averaged(TRAINED)
    with pytest.raises(ValueError, match="no checkpoints to average"):
        idm.averaged(model())


def test_debias_and_profile_finish_the_training_and_have_no_line():
    states = good()
    one = lambda net: net.bias.squeeze()
    ridge = idm.from_torch(TRAINED, (X, Y), idm.Gaussian(1.0), l2=1e-6, checkpoints=states)
    assert "training" not in idm.infer(ridge, one, debias=True).budget
    assert "training" not in idm.profile(model(checkpoints=states), one).budget


def test_a_tangent_has_no_replicates():
    fit = model(replicates=good(3), checkpoints=good())
    assert tangent_model(fit).facts.training.replicates is None
    assert tangent_model(fit).facts.training.checkpoints is fit.facts.training.checkpoints
