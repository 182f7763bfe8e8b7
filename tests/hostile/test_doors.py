"""Arguments of the wrong kind at every door: a clear error, never a raw one."""

import numpy as np
import pytest

import implicit_delta as idm

Y = np.arange(12.0)


def model():
    return idm.from_loglik(lambda th: -((Y - th[0]) ** 2) / 2, [Y.mean()])


def psi(th):
    return th[0]


WRONG = {
    "a name": (lambda: idm.infer(model(), psi, "bootstrap"), "must be a method"),
    "a class": (lambda: idm.infer(model(), psi, idm.FiniteDifference), "must be a method"),
    "a solver's name": (lambda: idm.Infinitesimal(solver="cholesky"), "idm.cholesky"),
    "a maximizer's name": (lambda: idm.FiniteDifference(maximizer="lbfgs"), "idm.lbfgs"),
    "for a bootstrap": (lambda: idm.Bootstrap(maximizer="lbfgs"), "idm.lbfgs"),
    "for a profile": (lambda: idm.profile(model(), psi, maximizer="lbfgs"), "idm.lbfgs"),
    "for polish": (lambda: idm.polish(model(), maximizer="lbfgs"), "idm.lbfgs"),
    "a class to compare": (lambda: idm.compare(model(), psi, [idm.Bootstrap]), "give methods"),
    "a model to refit": (lambda: idm.refit(model(), psi), "infer"),
    "a penalty of shape (1,)": (
        lambda: idm.from_loglik(lambda th: -(th**2), [0.0], penalty=lambda th: 5 * th**2),
        "one number",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_what_to_give(name):
    call, text = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=text):
        call()


def test_one_method_can_be_compared_alone():
    assert idm.compare(model(), psi, idm.Infinitesimal()).methods == ["Infinitesimal"]
