"""Arrays sharded over devices: in a process of its own that has four of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

PROGRAM = """
import json, warnings
import numpy as np, jax, jax.numpy as jnp
import implicit_delta as idm
from jax.sharding import NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
X = rng.normal(size=(210, 3))
y = rng.binomial(1, 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5]))).astype(float)
apply = lambda p, x: x @ p["w"] + p["b"]
psi = lambda p: jax.nn.sigmoid(p["w"][0] + p["b"])
start = {"w": jnp.zeros(3), "b": jnp.zeros(())}
clusters = np.arange(210) % 14


def answers(data, params):
    model = idm.from_jax(params, data, idm.Bernoulli(), apply=apply, l2=0.5, batch_size=64)
    fit = idm.polish(model)
    ests = [idm.infer(fit, psi, robust=r) for r in (False, True)]
    ests.append(idm.infer(fit, psi, clusters=clusters))
    ests.append(idm.infer(fit, psi, idm.Infinitesimal(curvature="ggn")))
    kept = jax.tree_util.tree_leaves(model.rows.batches.arrays)
    return [e.value for e in ests] + [e.standard_error for e in ests], kept


def mesh(kind):
    axes = getattr(jax.sharding.AxisType, kind)
    return jax.make_mesh((2, 2), ("rows", "columns"), axis_types=(axes,) * 2)


def put(on):
    rows = NamedSharding(on, P("rows"))
    return jax.device_put(jnp.asarray(X), rows), jax.device_put(jnp.asarray(y), rows)


report = {"devices": jax.device_count(), "whole": answers((X, y), start)[0]}
auto = mesh("Auto")
numbers, kept = answers(put(auto), jax.device_put(start, NamedSharding(auto, P())))
report["auto"] = numbers
report["devices kept"] = [len(leaf.sharding.device_set) for leaf in kept]
explicit = mesh("Explicit")
try:
    answers(put(explicit), start)
except idm.UnsupportedModelError as error:
    report["error"] = str(error)
    line = str(error).split("`")[1]
    exec(line.replace("mesh = ", "better = "))
    report["by the line"] = answers(put(better), start)[0]
report["explicit params"] = answers((X, y), jax.device_put(start, NamedSharding(explicit, P())))[0]
with jax.set_mesh(explicit):
    report["in an explicit mesh"] = answers((X, y), start)[0]
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def report():
    flags = "--xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", ["auto", "by the line", "explicit params", "in an explicit mesh"])
def test_sharded_arrays_give_the_numbers_of_one_device(report, case):
    assert report["devices"] == 4
    np.testing.assert_allclose(report[case], report["whole"], rtol=1e-10)


def test_data_stay_sharded(report):
    assert report["devices kept"] == [4, 4]


def test_explicit_axes_are_refused_with_a_line_that_works(report):
    assert "explicit axis 'rows'" in report["error"]
    assert "AxisType.Auto" in report["error"]
