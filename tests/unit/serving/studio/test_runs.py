"""Runs by index: journals, checkpoints, examples, the demo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.serving.studio.served import Served
from transduce.serving.http import RequestError
from transduce.serving.studio.runs import DEMO_SENTENCES, Runs

SAMPLES = [["ein Hund", "a dog", "a cat"], ["zwei", "two", "two"]]


def write_run(folder: Path, updates: int = 3, **scores: Any) -> Path:
    folder.mkdir(exist_ok=True)
    lines: list[dict[str, Any]] = [{"event": "began", "updates": 9}]
    lines += [{"event": "update", "update": number, "loss": 1.0 / number} for number in range(1, updates + 1)]
    lines += [{"event": "validation", "update": updates, "loss": 0.5, "best": True, "samples": SAMPLES}]
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if scores:
        (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def add_checkpoint(folder: Path, update: int) -> Path:
    place = folder / "checkpoints" / f"update-{update:08d}"
    place.mkdir(parents=True)
    return place


def test_a_run_is_listed_and_its_report_is_that_of_the_command(tmp_path: Path) -> None:
    from transduce.inspection.run_record import read_run
    from transduce.inspection.run_report import content

    folder = write_run(tmp_path / "a")
    runs = Runs({"a": str(folder), "again": str(folder / "model"), "model": str(tmp_path / "none")})
    (listed,) = runs.listed()["runs"]
    assert (listed["index"], listed["name"], listed["ended"], listed["updates"]) == (0, "a", False, 3)
    assert (runs.of_model("a"), runs.of_model("again"), runs.of_model("model")) == (0, 0, None)
    report = runs.report(0, None)
    expected = content([read_run(folder)])
    assert {name: report[name] for name in expected} == expected
    with pytest.raises(RequestError, match="no run 1"):
        runs.report(1, None)


def test_half_a_surrogate_pair_in_a_journal_is_served(tmp_path: Path) -> None:
    sample = ["ein Hund", "a dog", "a \udc80 dog"]
    with (write_run(tmp_path / "a") / "journal.jsonl").open("a") as journal:
        journal.write(
            json.dumps({"event": "validation", "update": 4, "loss": 0.4, "best": True, "samples": [sample]}) + "\n"
        )
    studio = Served([], {"a": str(tmp_path / "a")})
    assert sample[2] in json.dumps(studio.get("runs/0"), ensure_ascii=False)


def test_a_growing_run_is_read_again_only_when_something_was_written(tmp_path: Path) -> None:
    runs = Runs({"a": str(write_run(tmp_path / "a"))})
    version = runs.report(0, None)["version"]
    assert runs.report(0, version) == {"version": version, "unchanged": True}
    write_run(tmp_path / "a", updates=5)
    newer = runs.report(0, version)
    assert not newer["unchanged"] and newer["updates"] == 5 and newer["version"] != version


def test_a_checkpoint_keeps_its_index_when_others_are_pruned(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    first = add_checkpoint(folder, 10)
    add_checkpoint(folder, 20)
    runs = Runs({"a": str(folder)})
    assert [one["update"] for one in runs.listed()["runs"][0]["checkpoints"]] == [10, 20]
    first.rmdir()
    add_checkpoint(folder, 30)
    assert runs.listed()["runs"][0]["checkpoints"] == [{"index": 1, "update": 20}, {"index": 2, "update": 30}]
    assert (runs.checkpoint("a", 1), runs.checkpoint("a", 2)) == (20, 30)
    for index in (0, 3):
        with pytest.raises(RequestError, match=f"no checkpoint {index}"):
            runs.checkpoint("a", index)
    with pytest.raises(RequestError, match="has no run"):
        runs.checkpoint("b", 0)


def test_a_damaged_journal_is_an_error_without_a_path(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "journal.jsonl").write_text("damaged\n")
    runs = Runs({"a": str(folder)})
    assert runs.listed()["runs"][0]["updates"] == 0
    with pytest.raises(RequestError, match="journal") as raised:
        runs.report(0, None)
    assert raised.value.status == 404 and str(tmp_path) not in str(raised.value)


def test_examples_are_the_sources_of_the_validation(tmp_path: Path) -> None:
    scores: dict[str, Any] = {
        "pronoun_accuracy": 1.0,
        "heads": {"animal": [["encoder", 2, 1], 0.3]},
        "moving_head": None,
    }
    runs = Runs({"a": str(write_run(tmp_path / "a")), "b": str(write_run(tmp_path / "b", **scores))})
    assert runs.examples("a") == ["ein Hund", "zwei"]
    assert runs.examples("b") == [*DEMO_SENTENCES, "ein Hund", "zwei"]
    assert runs.examples("c") == []
    assert runs.demo() == ("b", scores)


@pytest.mark.parametrize("content", ["", "no JSON", "[1]", '{"accuracy": 1}', '{"pronoun_accuracy": 1, "heads": 3}'])
def test_other_scores_are_no_demo(tmp_path: Path, content: str) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "scores.json").write_text(content)
    assert Runs({"a": str(folder)}).demo() is None


def test_the_http_process_does_not_import_torch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    script = (
        "import sys; from transduce.serving.app import create_app; from transduce.serving.studio.runs import Runs; "
        "from transduce.inspection.page import saved_template; saved_template(); "
        f"Runs({{'a': {str(folder)!r}}}).report(0, None); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
