"""Strangers' model files: each is rejected within a second and 200 MB of memory, in one sentence, and runs no code.

Time and memory are those of a process that has imported everything before.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.torture.example import Tally, some
from tests.torture.fork_server import ForkServer
from tests.torture.hostile.case import CANARY, GENERATE, IMPORT, IMPORT_T5, TRANSLATE, Case, make_bases, place_of
from tests.torture.hostile.foreign import FOREIGN, GGUF
from tests.torture.hostile.native import NATIVE
from tests.torture.hostile.tokenizers import TOKENIZERS

CASES: dict[str, Case] = NATIVE | TOKENIZERS | FOREIGN | GGUF
SAMPLE = (
    "manifest is a device",
    "config is a pipe, no manifest",
    "manifest lists the weights 30,000 times",
    "weights are a pickle",
    "weights in float8",
    "weights of 100,000 tensors",
    "weights with a tensor of 20 GB",
    "own: normalizer that multiplies",
    "own: regex that panics",
    "foreign: normalizer that multiplies",
    "foreign: regex that panics",
    "foreign: shard is a pipe",
    "gguf: array of 2^60 numbers in 94 bytes",
    "gguf: 2^63 fields",
)
MOST_SECONDS, MOST_MEGABYTES = 1.0, 200
LIMITS = {"seconds": 20, "bytes": 2**31}
"""Of a child, so that a case that does harm harms nobody else."""


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bases(tmp_path_factory.mktemp("hostile") / "bases")


def test_there_are_more_than_sixty_cases() -> None:
    assert len(CASES) >= 60 and set(SAMPLE) <= CASES.keys()


def test_the_sound_folders_work(fork_server: ForkServer, bases: Path, tmp_path: Path) -> None:
    for number, command in enumerate((TRANSLATE, GENERATE, IMPORT, IMPORT_T5)):
        place = place_of(bases, tmp_path / str(number))
        assert fork_server.run(*Case(command, lambda _: None).arguments(place)).code == 0, command


@pytest.mark.parametrize("name", some(CASES, SAMPLE))
def test_a_hostile_model_is_rejected_at_once(
    name: str, fork_server: ForkServer, bases: Path, tmp_path: Path, tally: Tally
) -> None:
    case, place = CASES[name], place_of(bases, tmp_path / "place")
    case.damage(place)
    measured = tmp_path / "measured"
    outcome = fork_server.run(*case.arguments(place), measure=str(measured), limits=LIMITS)
    assert outcome.code == 65, outcome
    assert case.says in outcome.error and str(place) in outcome.error, outcome.error
    used = json.loads(measured.read_text())
    assert used["processor"] <= MOST_SECONDS and used["megabytes"] <= MOST_MEGABYTES, used
    assert used["seconds"] <= 5 * MOST_SECONDS, used  # others may use the machine, but nothing waits
    assert not (place / CANARY).exists() and not (place / "imported").exists()
    tally("hostile models rejected", 1, f", the last in {used['seconds']:.2f} s and {used['megabytes']:.0f} MB")
