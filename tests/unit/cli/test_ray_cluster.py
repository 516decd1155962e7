"""What Ray's processes run, without Ray: an actor translates blocks and returns integers and strings, errors too."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.example import complaint
from tests.unit.inference.jobs.test_shards import many_lines
from transduce import __version__
from transduce.cli.main import run
from transduce.cli.ray_cluster import BlockActor, Share
from transduce.cli.translate import command


def options(**changes: Any) -> dict[str, Any]:
    context = command.make_context("translate", ["run", "big.txt", "--engine", "torch"])
    given = {name: value for name, value in context.params.items() if name not in ("file", "output")}
    return {**given, "block_lines": 512, "threads": 1, "version": __version__, **changes}


def actor(**changes: Any) -> BlockActor:
    return BlockActor("big.txt", "out", json.dumps(options(**changes)), 1)


def test_actors_translate_blocks_in_any_order(place: Path) -> None:
    many_lines(place / "big.txt", 1200)
    assert run(["translate", "run", "big.txt", "--output", "alone", "--engine", "torch", "--threads", "1"]) == 0
    Path("out.blocks").mkdir()  # the driver makes it
    actors = [actor(), actor()]
    assert [one.load() for one in actors] == [[0, 0, ""]] * 2
    numbers = [2, 0, 1, 0]
    random.Random(1).shuffle(actors)
    assert [actors[number % 2].translate(number)[:2] for number in numbers] == [[0, 176], [0, 512], [0, 512], [0, 512]]
    assert run(["merge", "out"]) == 0
    assert Path("out").read_bytes() == Path("alone").read_bytes()


def test_what_an_actor_cannot_do_is_returned_with_its_exit_code(place: Path) -> None:
    many_lines(place / "big.txt", 1200)
    for given, code, words in (
        (actor(), 66, "out.blocks: does not exist there; put the output on storage that all nodes share"),
        (actor(version="0.0.1"), 2, f"has transduce {__version__}, not 0.0.1; install the same version"),
    ):
        found = given.load()
        assert found[0] == code and words in str(found[2])
    Path("out.blocks").mkdir()
    assert actor().load()[0] == 0
    wrong = actor(run="nowhere").load()
    assert wrong[0] == 66 and "nowhere" in str(wrong[2])
    other = actor(beam_size=3).load()
    assert other[0] == 73 and "another --beam-size" in str(other[2])
    (place / "big.txt").write_text("a\n" * 1200)
    changed = actor().load()
    assert changed[0] == 73 and "another input" in str(changed[2])


def test_without_ray_one_sentence_says_how_to_get_it(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert run(["translate", "run", "a.txt", "--output", "out", "--ray", "auto"]) == 2
    assert "--ray needs the package ray; install it with `pip install 'transduce[ray]'`" in complaint(
        capsys.readouterr()
    )
    assert not Path("out.blocks").exists()


def test_an_address_that_is_wrong_is_one_sentence_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="needs ray; pip install 'transduce[ray]' removes this skip")
    for address, code, words in (
        ("127.0.0.1:1", 66, "--ray 127.0.0.1:1: cannot be reached ("),
        ("nowhere", 2, "--ray nowhere: must be auto, local, or host:port"),
        ("ray://127.0.0.1:10001", 2, "must be auto, local, or host:port"),
        ("127.0.0.1:99999999", 66, "cannot be reached"),
    ):
        assert run(["translate", "run", "a.txt", "--output", "out", "--ray", address]) == code
        assert words in complaint(capsys.readouterr())
    assert not Path("out.blocks").exists()


def test_a_node_has_as_many_actors_as_fit() -> None:
    assert Share(2, 0).fit({"CPU": 7.0}) == 3
    assert Share(1, 1).fit({"CPU": 8.0, "GPU": 2.0}) == 2
    assert Share(1, 1).fit({"CPU": 8.0}) == 0
