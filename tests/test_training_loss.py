"""The training loss as psi gets its real reason."""

import numpy as np
import pytest
from scipy.special import expit

import implicit_delta as idm

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(200), RNG.normal(size=(200, 2))])
Y = (RNG.random(200) < expit(X @ [0.2, 1.0, -0.5])).astype(float)


def loss(b):
    return np.logaddexp(0, X @ b) - Y * (X @ b)


def logit(**options):
    return idm.from_loglik(lambda b: -loss(b), start=np.zeros(3), **options)


@pytest.mark.parametrize("psi", [lambda b: loss(b).mean(), lambda b: 2 * loss(b).sum()])
def test_its_mean_and_multiples_are_refused_with_the_reason(psi):
    with pytest.raises(idm.EvaluationError, match=r"training loss.*vanishes.*optimistic.*held out"):
        idm.infer(logit(), psi)


def test_of_a_network_too():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
    module.weight.data[:] = torch.tensor(logit().theta)
    data = torch.tensor(X), torch.tensor(Y)[:, None]
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    with pytest.raises(idm.EvaluationError, match="training loss"):
        idm.infer(
            idm.from_torch(module, data, idm.Bernoulli()), lambda m: entropy(m(data[0]), data[1])
        )


def test_by_rows_under_a_penalty_it_is_answered_with_a_warning():
    with pytest.raises(idm.EvaluationError, match="training loss"):
        idm.infer(logit(), idm.Average(loss, sample="training"))
    model = logit(l2=5.0)
    with pytest.warns(idm.ImplicitDeltaWarning, match="optimistic"):
        estimate = idm.infer(model, idm.Average(loss, sample="training"))
    b, p = model.theta, expit(X @ model.theta)
    scores, A = (Y - p)[:, None] * X, (X.T * (p * (1 - p))) @ X + 5.0 * np.eye(3)
    response = np.linalg.solve(A, -scores.mean(axis=0))  # the gradient of the mean loss
    influence = scores @ response + (loss(b) - loss(b).mean()) / 200
    assert estimate.standard_error == pytest.approx(np.sqrt(influence @ influence), rel=1e-5)


def test_another_refused_psi_keeps_its_own_reason():
    with pytest.raises(idm.ImplicitDeltaError, match=r"bends|derivative"):
        idm.infer(logit(), lambda b: np.sum((b - logit().theta) ** 2))


def test_a_psi_that_does_not_move_is_not_taken_for_it():
    with pytest.raises(idm.EvaluationError, match="piecewise constant"):
        idm.infer(logit(), lambda b: np.mean(X @ b > 0))
