"""Two ranks of torch.distributed: the answers of one process, whatever happens to a rank."""

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.xdist_group("ranks"),
    pytest.mark.skipif(
        not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
        reason="torch without gloo",
    ),
]

HERE = Path(__file__).parent
EXACT = 1e-10  # of a number: sums in another order
LONGEST = 60  # seconds that anything may hang
QUESTIONS = [
    "polish", "plain", "ggn", "iterative", "robust", "HC3", "clusters", "two ways", "average",
    "average of training rows", "statistic", "simulation", "smoothed", "bootstrap", "difference",
    "stochastic", "profile", "weights", "sampling", "gaussian", "evidence", "sampler", "shuffled",
    "examples", "batch sampler", "running averages", "strongest rows",
    "groups of training rows", "clusters of an average", "one rank, residuals", "one rank, series",
    "sampler, average", "shuffled, average", "examples, average", "batch sampler, average",
]  # fmt: skip
MISTAKES = {
    "loglik": "ValueError: On rank 1: KeyError: 'a column of rank 1'",
    "on the way": "ValueError: In rank 1: KeyError: 'on the way'",
    "nan": "ValueError: On rank 1: Some targets are NaN",
    "empty": "ValueError: On rank 1: There are no rows in data",
    "same rows": "ValueError: Ranks 0 and 1 have the same 91 rows",
    "same rows, flipped": "ValueError: Ranks 0 and 1 have the same 91 rows",
    "other dtype": "ValueError: The dtype of rank 1 is float32",
    "other parameters": "ValueError: The parameters of the module on rank 1 differ",
    "other frozen part": "ValueError: The parameters of the module on rank 1 differ",
    "other size": "ValueError: The number of parameters of rank 1 is 3",
    "other l2": "ValueError: The penalty of rank 1 (l2=2)",
    "other likelihood": "ValueError: The ranks have different likelihoods, Bernoulli(), Gaussian",
    "weights": "ValueError: On rank 0: weights has shape (91,), but there are 60",
    "labels": "ValueError: In rank 0: clusters has 91 labels, and this rank has 60 rows",
    "psi": "ZeroDivisionError: in psi",
    "psi asks the model": "UnsupportedModelError: psi asks the model of all ranks",
    "rows of rank 0": "EvaluationError: h returned 60 rows, but there are 91 observations",
    **dict.fromkeys(
        [
            "order of the dataset", "order of the dataset, whole parts",
            "order of the dataset, groups", "order of the dataset, smoothed",
            "order of the dataset, statistic", "order of the dataset, bootstrap",
        ],
        "EvaluationError: The rows of this model are in the order of the ranks, not of your data",
    ),
    "groups of all rows": "ValueError: In rank 0: by has 91 labels, and this rank has 46 rows",
    "clusters of all rows": "ValueError: In rank 0: clusters has 91 labels, and this rank has 46",
    "clusters of all rows, statistic": "ValueError: In rank 0: clusters has 91 labels, and this",
    "series": "UnsupportedModelError: HAC takes the rows for a series",
    "blocks": 'UnsupportedModelError: Bootstrap(kind="blocks") takes the rows for a series',
    "other theta": "RankError: The ranks have diverged: rank 0 is at `score`, and rank 1 at `sco",
    "other question": "RankError: The ranks have diverged: rank 0 is at `objective`, and rank 1",
    "jobs": "UnsupportedModelError: A model whose rows are on several ranks cannot be copied",
    "sampler of others": "ValueError: On rank 0: The DistributedSampler is for rank 0 of 3",
    "no group": "TypeError: group is a process group that this rank is a member of",
}  # fmt: skip


def environment(**more):
    path = os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def launch(part, **more):
    """Start both ranks as torchrun does, but leave one alive if the other dies."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", **more}
    return [
        subprocess.Popen(
            [sys.executable, HERE / "ranks.py", part],
            env=environment(RANK=str(rank), LOCAL_RANK=str(rank), **where),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


def results(ranks):
    """What the ranks found; none of them is left running."""
    with ExitStack() as ends:
        for rank in ranks:
            ends.callback(rank.kill)
        return [said(*rank.communicate(timeout=3 * LONGEST)) for rank in ranks]


def said(out, err):
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"log": err}


def torchrun(*script):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, *script], env=environment(), capture_output=True, text=True, timeout=5 * LONGEST
    )


@pytest.fixture(scope="module")
def equal():
    done = torchrun(HERE / "ranks.py", "equal")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 2, done.stderr[-3000:]
    return lines


@pytest.fixture(scope="module")
def faults():
    return results(launch("faults"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_two_ranks_are_one_process(equal, question):
    for one, many in (rank[question] for rank in equal):
        assert np.all(np.isfinite(one))
        np.testing.assert_allclose(many, one, rtol=EXACT)
    assert equal[0][question] == equal[1][question]  # to the last bit


def test_seeds_are_those_of_rank_0(equal):
    assert equal[0]["unseeded"] == equal[1]["unseeded"]


def test_rank_0_tells_and_numbers_that_travel_are_counted(equal):
    assert sorted(rank["told"] for rank in equal) == [0, 1]
    assert [rank["told of own models"] for rank in equal] == [2, 2]  # of one process each
    for rank in equal:
        assert rank["n"] == [91, 91]
        assert rank["notes"]["shards"] == 2
        assert min(rank["notes"]["sent"], rank["notes"]["received"]) > 0
        assert rank["again"]  # the same question sends as much


def test_a_product_sends_the_same_for_any_number_of_rows(equal):
    for rank in equal:
        assert rank["of a product"] == [3 * 8] * 2


def test_running_averages_are_those_of_rank_0(equal):
    told, silent = sorted((rank["running averages told"] for rank in equal), key=len, reverse=True)
    assert "0.running_mean" in told[0]
    assert not silent


def test_rank_0_may_print_alone(equal):
    model, *_ = max(rank["printed"] for rank in equal)
    assert "from_torch: 91 rows, 3 parameters" in model


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_one_rank_is_an_error_of_all(faults, mistake):
    for rank in faults:
        assert rank[mistake].startswith(MISTAKES[mistake]), rank.get("log")


def test_parts_in_order_are_a_series(faults):
    for rank in faults:
        np.testing.assert_allclose(rank["series in order"], rank["series of one"], rtol=EXACT)


@pytest.mark.parametrize("data", ["sampler", "shuffled", "examples", "batch sampler"])
def test_strongest_rows_have_the_numbers_of_the_dataset(equal, data):
    for rank in equal:
        numbers, summed, kept = rank[f"{data}: rows of the dataset"]
        assert summed == kept == list(map(str, numbers))


def test_strongest_rows_without_a_sampler_name_their_rank(equal):
    for rank in equal:
        numbers = rank["strongest rows"][0][0]
        named = [f"rank 0, row {i}" if i < 60 else f"rank 1, row {i - 60}" for i in numbers]
        assert rank["rows of ranks"] == [named] * 2
        assert rank["rows of one rank"] is None


def test_the_group_goes_on_after_errors(faults):
    assert faults[0]["goes on"] == faults[1]["goes on"]


def test_sharded_modules_are_refused_with_a_line_that_works(faults):
    for rank in faults:
        assert "StateDictOptions(full_state_dict=True)" in rank["fsdp"]
        assert rank["gathered"] == 91


def test_dropped_rows_and_missing_groups_are_told(faults):
    told, silent = sorted((rank["warnings"] for rank in faults), key=len, reverse=True)
    assert "(drop_last=True)" in told[0]
    assert "group=torch.distributed.group.WORLD" in told[1]
    assert all("group=torch.distributed.group.WORLD" in text for text in silent)


@pytest.mark.parametrize("ends", [0, 1])
def test_a_rank_that_is_killed_is_no_hang(ends):
    left = results(launch("ended", ENDS=str(ends)))[1 - ends]
    assert "A process of the group is gone" in left["error"], left
    assert left["seconds"] < LONGEST / 2


def test_a_rank_that_does_not_come_is_no_hang():
    first, _ = results(launch("absent", IMPLICIT_DELTA_PATIENCE="3"))
    assert "A process of the group is gone, or was not at" in first["error"], first
    assert first["seconds"] < LONGEST / 2


@pytest.mark.parametrize("setting", ["soon", "-1", "inf"])
def test_patience_is_a_number(setting, monkeypatch):
    from implicit_delta.models.sharded.ranks import patience

    monkeypatch.setenv("IMPLICIT_DELTA_PATIENCE", setting)
    with pytest.raises(ValueError, match="IMPLICIT_DELTA_PATIENCE"):
        patience()


def test_a_group_needs_torchrun():
    import implicit_delta as idm

    data = torch.zeros(4, 1), torch.zeros(4, 1)
    with pytest.raises(ValueError, match="init_process_group"):
        idm.from_torch(torch.nn.Linear(1, 1), data, idm.Bernoulli(), group="WORLD")


def test_torchrun_without_a_group_is_told(monkeypatch):
    import implicit_delta as idm

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    data = torch.zeros(4, 1), torch.zeros(4, 1)
    with pytest.warns(idm.ImplicitDeltaWarning, match="init_process_group"):
        idm.from_torch(torch.nn.Linear(1, 1), data, idm.Bernoulli(), group=None)


def test_the_script_of_the_guide_prints_what_it_shows(tmp_path):
    page = (HERE.parent / "docs" / "guide" / "scale.md").read_text()
    script, shown = re.findall(r"```{code-block} (?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    (tmp_path / "bars.py").write_text(script)
    done = torchrun(tmp_path / "bars.py")
    assert done.stdout.strip() == shown.splitlines()[1], done.stderr[-2000:]
