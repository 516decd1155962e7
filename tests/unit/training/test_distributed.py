"""Several processes train one model: the same order, the same losses, and one who writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.training.example import TABLES, recipe
from tests.unit.training.ranked import go
from transduce.cli.main import run as run_command
from transduce.config import Table, merge
from transduce.data.batching import PairBatch
from transduce.model_folder import load_model, load_weights, weights_of
from transduce.storage.journal import read_journal
from transduce.storage.layout import CHECKPOINT_KIND
from transduce.storage.manifest import verify
from transduce.training.checkpoint import Checkpoints
from transduce.training.distributed import Ranks
from transduce.training.interruption import Interruption
from transduce.training.step import split_batches

PROJECT = Path(__file__).parents[3]
STOP, UPDATES = 8, TABLES["training"]["updates"]
CLOSE = 1e-5
"""Relative; the rounding of sums is a hundredth of it."""
BASE: Table = {"training": {"log_every": 1, "micro_batch_tokens": 37, "device": "cpu"}}
EVEN = merge(BASE, {"model": {"dropout": 0.0}})
RICH = merge(
    BASE,
    {
        "model": {"norm": "pre", "tied_embeddings": "target", "output_bias": True},
        "training": {
            "micro_batch_tokens": 61,
            "max_grad_norm": 0.5,
            "ema_decay": 0.9,
            "average_checkpoints": 2,
            "r_drop": 1.0,
            "gradient_checkpointing": True,
            "optimizer": "muon",
        },
    },
)
SHARD: Table = {"training": {"shard": True}}
ALONE = {"even": EVEN, "dropped": BASE, "rich": RICH}
TOGETHER = {"even": EVEN, "dropped": BASE, "sharded": merge(EVEN, SHARD), "rich": merge(RICH, SHARD)}


def torchrun(*arguments: str | Path, **extra: Any) -> subprocess.Popen[str]:
    """Start two ranks of a module."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "src"), str(PROJECT)]),
    }
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, *map(str, arguments)], env=environment, text=True, **{**streams, **extra})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Runs of one process."""
    place = tmp_path_factory.mktemp("alone")
    return place, {name: go({"name": name, "changes": changes}, place) for name, changes in ALONE.items()}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The same runs of two ranks, and some that stop in the middle; what each rank saw of them."""
    place = tmp_path_factory.mktemp("together")
    plans: list[Table] = [{"name": name, "changes": changes} for name, changes in TOGETHER.items()]
    plans += [{"name": "stopped", "changes": merge(RICH, SHARD), "stop": STOP}]
    plans += [{"name": "handed over", "resume": True}, {"name": "short", "changes": EVEN, "short": STOP}]
    plans += [{"name": "late", "changes": EVEN, "late": 3}]
    began = {"name": "handed over", "changes": RICH, "stop": STOP}
    assert go(began, place)["update"] == STOP
    spread(place / "handed over", True)
    (place / "plan.json").write_text(json.dumps(plans))
    with torchrun("tests.unit.training.ranked", place / "plan.json") as process:
        out, err = process.communicate()
    assert process.returncode == 0, out + err
    return place, [json.loads((place / f"seen-{rank}.json").read_text()) for rank in range(2)]


def spread(folder: Path, wanted: bool) -> None:
    """Change a run's mind about sharding, as a person may."""
    path = folder / "recipe.toml"
    text = path.read_text()
    assert f"shard = {str(not wanted).lower()}" in text
    path.write_text(text.replace(f"shard = {str(not wanted).lower()}", f"shard = {str(wanted).lower()}"))


def close(one: Path, other: Path) -> None:
    """Two runs have the same journal but for rounding, and nearly the same weights, moments and averages."""
    journals = [
        [event for event in read_journal(run / "journal.jsonl") if event["event"] == "update"] for run in (one, other)
    ]
    assert [event["tokens"] for event in journals[0]] == [event["tokens"] for event in journals[1]]
    for quantity in ("loss", "gradient_norm"):
        values = [[event[quantity] for event in journal] for journal in journals]
        np.testing.assert_allclose(*values, rtol=CLOSE, err_msg=quantity)
    checkpoints = [Checkpoints(run).path(UPDATES) for run in (one, other)]
    for name in verify(checkpoints[0], CHECKPOINT_KIND)["files"]:
        if name.endswith(".safetensors"):
            found = [load_weights(checkpoint / name) for checkpoint in checkpoints]
            for key, tensor in found[0].items():
                torch.testing.assert_close(tensor, found[1][key], rtol=1e-4, atol=1e-5, msg=f"{name}: {key}")


@pytest.mark.parametrize(
    ("one", "two"), [("even", "even"), ("dropped", "dropped"), ("even", "sharded"), ("rich", "rich")]
)
def test_two_ranks_learn_what_one_process_learns(
    alone: tuple[Path, Any], together: tuple[Path, Any], one: str, two: str
) -> None:
    close(alone[0] / one, together[0] / two)


@pytest.mark.parametrize("name", ["even", "dropped", "rich"])
def test_the_order_of_the_data_does_not_depend_on_ranks(
    alone: tuple[Path, dict[str, Any]], together: tuple[Path, list[dict[str, Any]]], name: str
) -> None:
    orders = [seen[name]["rows"] for seen in (alone[1], *together[1])]
    assert len(orders[0]) == UPDATES
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("name", ["even", "dropped"])
def test_both_ranks_hold_the_same_weights(together: tuple[Path, list[dict[str, Any]]], name: str) -> None:
    first, second = (seen[name] for seen in together[1])
    assert (first["update"], second["update"]) == (UPDATES, UPDATES)
    assert first["weights"] == second["weights"]


def test_where_one_rank_runs_out_of_memory_both_go_on_in_smaller_micro_batches(
    alone: tuple[Path, Any], together: tuple[Path, list[dict[str, Any]]]
) -> None:
    close(alone[0] / "even", together[0] / "short")
    first, second = (seen["short"] for seen in together[1])
    assert first["weights"] == second["weights"]
    message = [
        event for event in read_journal(together[0] / "short/journal.jsonl") if event["event"] == "out_of_memory"
    ]
    assert message == [{"event": "out_of_memory", "update": STOP, "micro_batch_tokens": 18}]


def test_of_a_sharded_model_each_rank_holds_a_part(together: tuple[Path, list[dict[str, Any]]]) -> None:
    first, second = (seen["sharded"] for seen in together[1])
    whole = together[1][0]["even"]["held"]
    assert first["held"] + second["held"] == whole
    assert max(first["held"], second["held"]) < 0.55 * whole
    assert first["weights"] != second["weights"]


@pytest.mark.parametrize("name", TOGETHER)
def test_a_run_of_two_ranks_is_written_down_once(together: tuple[Path, Any], name: str) -> None:
    folder = together[0] / name
    events = read_journal(folder / "journal.jsonl")
    assert events[0]["event"] == "began" and events[0]["ranks"] == 2
    assert [event["update"] for event in events if event["event"] == "update"] == list(range(1, UPDATES + 1))
    assert [event["event"] for event in events].count("validation") == 4
    assert Checkpoints(folder).updates() == [10, 15, 17]


@pytest.mark.parametrize("name", ["sharded", "rich"])
def test_the_model_of_a_sharded_run_is_as_any_other(
    alone: tuple[Path, Any], together: tuple[Path, Any], name: str
) -> None:
    one, other = (
        load_model(place / run).model
        for place, run in ((alone[0], {"sharded": "even"}.get(name, name)), (together[0], name))
    )
    for (key, weight), (_, shared) in zip(weights_of(one).items(), weights_of(other).items(), strict=True):
        torch.testing.assert_close(weight, shared, rtol=1e-4, atol=1e-5, msg=key)


def test_all_ranks_stop_after_the_same_update(together: tuple[Path, list[dict[str, Any]]]) -> None:
    assert [seen["stopped"]["update"] for seen in together[1]] == [STOP, STOP]
    assert all(f"stopped at update {STOP}" in seen["stopped"]["message"] for seen in together[1])


def test_no_rank_leaves_before_the_leader_has_saved_whatever_signals_come(
    together: tuple[Path, list[dict[str, Any]]],
) -> None:
    assert [(seen["late"]["update"], seen["late"]["saved"]) for seen in together[1]] == [(3, [3])] * 2
    assert all("stopped at update 3" in seen["late"]["message"] for seen in together[1])


def test_a_sharded_run_goes_on_in_one_process_and_the_other_way_round(
    alone: tuple[Path, Any], together: tuple[Path, Any]
) -> None:
    folder = together[0] / "stopped"
    spread(folder, False)
    assert go({"name": "stopped", "resume": True}, together[0])["update"] == UPDATES
    for name, before, now in (("stopped", 2, 1), ("handed over", 1, 2)):
        close(alone[0] / "rich", together[0] / name)
        noted = [event for event in read_journal(together[0] / name / "journal.jsonl") if event["event"] == "ranks"]
        assert noted == [{"event": "ranks", "update": STOP, "before": before, "now": now}]


@pytest.mark.long
def test_sigterm_to_torchrun_stops_all_ranks_with_everything_saved(tmp_path: Path) -> None:
    """Twice, in a run too long to end by itself: no update is lost or told twice, and the follower writes nothing."""
    folder, path = tmp_path / "run", tmp_path / "recipe.toml"
    path.write_text(recipe(**merge(BASE, {"training": {"updates": 10**6, "log_every": 1}})).to_toml())
    journal, lines = folder / "journal.jsonl", 3
    for start in (["--recipe", path, "--output", folder], ["--resume", folder]):
        with torchrun("transduce", "train", *start) as process:
            while not journal.exists() or journal.read_text().count("\n") < lines:
                assert process.poll() is None
                time.sleep(0.001)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate()
        found = Checkpoints(folder).latest()
        assert found is not None
        assert found[1] == []
        updates = [event["update"] for event in read_journal(journal) if event["event"] == "update"]
        assert updates == list(range(1, found[0] + 1))
        assert out == ""
        assert err.count(f"stopped at update {found[0]}, everything is saved") == 1
        assert err.count("parameters, ") == 1
        lines = journal.read_text().count("\n") + 3


def test_a_signal_during_communication_between_ranks_is_handled_at_the_next_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interruption = Interruption()

    def answer_after_a_signal(_: torch.Tensor, __: object) -> None:
        interruption.wanted = signal.SIGTERM

    monkeypatch.setattr("transduce.training.distributed.dist.all_reduce", answer_after_a_signal)
    assert not Ranks(0, 2).agree(interruption)
    assert Ranks(0, 2).agree(interruption)
    assert interruption.wanted == signal.SIGTERM


LEAVING = """
import atexit, pathlib, torch
atexit.register(lambda: print(*(task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm"))))
from transduce.training.distributed import joined
with joined("cpu"):
    torch.distributed.all_reduce(torch.zeros(3))
    print("met", torch.distributed.is_initialized())
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux shows the names of threads; run it there")
def test_no_thread_of_gloo_is_left_when_python_is_torn_down() -> None:
    """One that lets go of a tensor then aborts the process. What is registered first is called last."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "TORCHELASTIC_RUN_ID": "x"}
    environment = {**os.environ, **alone, "PYTHONPATH": str(PROJECT / "src")}
    done = subprocess.run([sys.executable, "-c", LEAVING], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    met, names = done.stdout.splitlines()
    assert met == "met True" and names and "gloo" not in names


def test_the_proof_of_resuming_is_for_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "a test")
    path = tmp_path / "recipe.toml"
    path.write_text(recipe(**BASE).to_toml())
    assert run_command(["train", "--recipe", str(path), "--output", str(tmp_path / "run"), "--verify-resume"]) == 2
    assert "start it without torchrun" in capsys.readouterr().err


def test_sharding_needs_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(recipe(**merge(BASE, SHARD)).to_toml())
    assert run_command(["train", "--recipe", str(path), "--output", str(tmp_path / "run")]) == 2
    assert "training.shard needs several processes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_sharding_cannot_choose_the_batch_by_trying_out_the_whole_model(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="give a number of tokens"):
        recipe(**merge(BASE, {"training": {"shard": True, "batch_tokens": "auto"}}))


def batch(rows: int, width: int) -> PairBatch:
    tokens = torch.ones(rows, width, dtype=torch.int64)
    return PairBatch(
        source=tokens,
        source_allowed=tokens.bool(),
        target=torch.ones(rows, width + 1, dtype=torch.int64),
        target_lengths=torch.full((rows,), width),
        num_target_tokens=rows * width,
        rows=np.arange(rows),
    )


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("rows", "width"), [(1, 5), (3, 5), (13, 5), (101, 2)])
def test_the_ranks_share_out_every_row_once_and_evenly(world: int, rows: int, width: int) -> None:
    micro_batches = split_batches([batch(rows, width), batch(1, 3)], 11, world)
    shares = [Ranks(rank, world).share(micro_batches) for rank in range(world)]
    assert sorted(part for share in shares for part in share) == list(range(len(micro_batches)))
    found = [(part.batch, row) for part in micro_batches for row in part.rows.rows.tolist()]
    assert found == [(0, row) for row in range(rows)] + [(1, 0)]
    sizes = [len(part.rows.source) for part in micro_batches[:-1]]
    assert max(sizes) - min(sizes) <= 1
    assert len(micro_batches) - 1 == rows or (len(micro_batches) - 1) % world == 0
