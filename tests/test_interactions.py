"""The table of interactions: every sampled cell gives the stored answer, or the stored refusal.

Cells are model x weights x evaluation x method x sandwich (`interactions.py`). A number is stored
with its standard error, a refusal by the class of its error; both with the classes of warnings.
"""

import json
from itertools import groupby

import numpy as np
import pytest

for library in ("jax", "pandas", "sklearn", "statsmodels", "torch"):
    pytest.importorskip(library)

from interactions import STORED, Cell, answer

TABLE = {Cell(*key.split("|")): found for key, found in json.loads(STORED.read_text()).items()}
# In standard errors. Solves and differences agree to 1e-6 between processors; a refit ends within
# its tolerance of the maximum, a thousandth of a standard error.
TOLERANCES = {"default": 1e-5, "ggn": 1e-5, "conjugate gradients": 1e-5, "Simulation": 1e-5}
OF_REFITS = 2e-3


def place(cell):
    return cell.model, cell.weights, cell.evaluation


def mismatch(cell, stored):
    """What differs between the answer to a cell and the stored one; "" if nothing does."""
    found = answer(cell)
    if "error" in found or "error" in stored:
        ours, theirs = found.get("error", "an answer"), stored.get("error", "an answer")
        return "" if ours == theirs else f"{ours} ({found.get('text', '')}), was {theirs}"
    tolerance = TOLERANCES.get(cell.method, OF_REFITS)
    size = np.array(stored["standard_error"])
    for name in ("value", "standard_error"):
        if np.any(abs(np.array(found[name]) - stored[name]) > tolerance * size):
            return f"{name} {found[name]}, was {stored[name]}"
    if not np.allclose(found["df"], stored["df"], rtol=1e-3):
        return f"df {found['df']}, was {stored['df']}"
    if found["warnings"] != stored["warnings"]:
        return f"warnings {found['warnings']}, were {stored['warnings']}"
    return ""


GROUPS = {
    " | ".join(key): list(cells) for key, cells in groupby(sorted(TABLE, key=place), key=place)
}


@pytest.mark.parametrize("group", GROUPS)
def test_cells_are_the_stored_ones(group):
    differing = {str(cell): mismatch(cell, TABLE[cell]) for cell in GROUPS[group]}
    assert not {cell: text for cell, text in differing.items() if text}


def test_the_table_covers_every_entry_of_every_axis():
    from interactions import EVALUATIONS, METHODS, MODELS, SANDWICHES, WEIGHTS

    for place, axis in enumerate((MODELS, WEIGHTS, EVALUATIONS, METHODS, SANDWICHES)):
        assert {cell[place] for cell in TABLE} == set(axis)
    answered = sum("error" not in found for found in TABLE.values())
    assert len(TABLE) > 3000
    assert answered > len(TABLE) / 3
