"""A few of the attacks of `make fuzz`, at seeds that it starts with: none is silent."""

from itertools import islice

import pytest
from hostile.fuzz import BAD, KINDS, OWN, attacks_of

SLOW = ("few_rows", "jax_functions")


@pytest.mark.slow
@pytest.mark.parametrize("kind", OWN)
def test_no_attack_is_silent(kind):
    found = list(islice(attacks_of(kind), 60))
    assert not [f for f in found if f[1] in BAD]
    assert "right" in {f[1] for f in found}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW else []) for k in KINDS if k not in OWN],
)
def test_a_case_is_right_or_told(kind):
    """Right, refused or warned for a reason that is true; no crash, no false refusal."""
    assert not [f for f in islice(attacks_of(kind), 8) if f[1] in BAD]
