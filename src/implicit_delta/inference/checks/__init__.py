"""Checks of a result: each is a function of a case that returns a finding or None."""

from collections.abc import Callable

from implicit_delta.core.findings import Finding
from implicit_delta.inference.checks.bends import bend, bent_draws
from implicit_delta.inference.checks.case import Case
from implicit_delta.inference.checks.covariance import negative_eigenvalues
from implicit_delta.inference.checks.dispersion import dispersion, pseudo_likelihood
from implicit_delta.inference.checks.drift import drift, parameter_drift
from implicit_delta.inference.checks.evaluation import blur, training_loss
from implicit_delta.inference.checks.noise import noise
from implicit_delta.inference.checks.parabola import parabola
from implicit_delta.inference.checks.small_samples import one_cluster, small_samples
from implicit_delta.inference.checks.stopped import (
    close_fit,
    memorized,
    states_alike,
    states_apart,
    stop,
    uninformed,
)
from implicit_delta.inference.checks.target import limit, shrinkage

CHECKS: tuple[Callable[[Case], Finding | None], ...] = (
    one_cluster,
    negative_eigenvalues,
    small_samples,
    close_fit,
    states_apart,
    states_alike,
    noise,
    drift,
    parameter_drift,
    parabola,
    memorized,
    pseudo_likelihood,
    dispersion,
    limit,
    bent_draws,
    bend,
    stop,
    uninformed,
    shrinkage,
    training_loss,
    blur,
)


def findings_of(case: Case) -> tuple[Finding, ...]:
    """Collect what the checks find, up to the first that is raised: later ones may not hold."""
    found: list[Finding] = []
    for check in CHECKS:
        finding = check(case)
        if finding is not None:
            found.append(finding)
            if finding.raises(case.strict):
                break
    return tuple(found)
