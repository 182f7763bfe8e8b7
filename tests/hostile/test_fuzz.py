"""A few of the attacks of `make fuzz`, at seeds that it starts with: none is silent."""

import pytest
from hostile.fuzz import KINDS, attack


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_attack_is_silent(kind):
    found = [attack(kind, seed) for seed in range(60)]
    assert not [(seed, f) for seed, f in enumerate(found) if str(f).startswith("silent")]
    assert "right" in found
