"""Which blocks a process translates, and that all together translate the file as one process does."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint
from transduce.cli.main import run
from transduce.errors import SettingsError
from transduce.inference.jobs.block_folder import BlockFolder
from transduce.inference.jobs.merge import merge
from transduce.inference.jobs.shards import Shard, read_shard
from transduce.storage.filesystem import locked_file

ARRAY = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_COUNT": "4"}


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("3/20", {"SLURM_ARRAY_TASK_ID": "9"}, Shard(3, 20)),
        ("1/1", {}, Shard(1, 1)),
        ("auto/4", ARRAY, Shard(3, 4)),
        ("auto/4", {**ARRAY, "SLURM_ARRAY_TASK_MIN": "0", "SLURM_ARRAY_TASK_ID": "0"}, Shard(1, 4)),
        ("auto/4", {**ARRAY, "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_ID": "4"}, Shard(4, 4)),
        ("auto/4", {**ARRAY, "SLURM_ARRAY_TASK_STEP": "2"}, Shard(2, 4)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "0"}, Shard(1, 4)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "3"}, Shard(4, 4)),
    ],
)
def test_a_shard_is_counted_from_one_wherever_the_scheduler_begins(
    text: str, environment: dict[str, str], expected: Shard
) -> None:
    assert read_shard(text, environment) == expected


@pytest.mark.parametrize(
    ("text", "environment", "message"),
    [
        ("0/4", {}, "no shard 0 of 4"),
        ("5/4", {}, "no shard 5 of 4"),
        ("1/0", {}, "between 1 and"),
        ("3", {}, "such as 3/20"),
        ("-1/3", {}, "such as 3/20"),
        ("a/b", {}, "such as 3/20"),
        ("auto/4", {}, "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX"),
        ("auto/20", ARRAY, "the Slurm array has 4 tasks, not 20"),
        ("auto/4", {**ARRAY, "SLURM_ARRAY_TASK_ID": "x"}, "SLURM_ARRAY_TASK_ID is 'x', not a number"),
        ("auto/4", {"SLURM_ARRAY_TASK_ID": "1"}, "SLURM_ARRAY_TASK_MIN is '', not a number"),
        ("auto/4", {"JOB_COMPLETION_INDEX": "4"}, "JOB_COMPLETION_INDEX is 4, counted from 0, but there are 4"),
    ],
)
def test_a_shard_that_does_not_exist_is_an_error(text: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_shard(text, environment)
    assert message in str(caught.value)


def test_shards_have_every_block_once() -> None:
    for count in (1, 3, 7, 12):
        found = [number for index in range(count) for number in Shard(index + 1, count).numbers(11)]
        assert sorted(found) == list(range(11))


def many_lines(path: Path, count: int = 1700) -> None:
    draw = random.Random(3)
    path.write_text("".join(" ".join(draw.choices("abcdefg", k=draw.randint(0, 6))) + "\n" for _ in range(count)))


def shard(text: str, *more: str, output: str = "out") -> int:
    given = ["--output", output, "--shard", text, "--block-lines", "512", "--engine", "torch", *more]
    return run(["translate", "run", "big.txt", *given, "--threads", "1"])


@pytest.mark.parametrize(("output", "options"), [("out", ["--n-best", "2"]), ("out.gz", [])], ids=["n-best", "gzip"])
def test_shards_in_any_order_give_what_one_process_gives(output: str, options: list[str], place: Path) -> None:
    many_lines(place / "big.txt")
    alone = ["translate", "run", "big.txt", "--output", f"alone-{output}", "--engine", "torch", "--threads", "1"]
    assert run([*alone, *options]) == 0
    for text in ("3/3", "1/3", "2/3", "2/3", "1/2"):
        assert shard(text, *options, output=output) == 0
    assert run(["merge", output]) == 0
    if output.endswith(".gz"):
        assert gzip.decompress(Path(output).read_bytes()) == gzip.decompress(Path(f"alone-{output}").read_bytes())
    assert Path(output).read_bytes() == Path(f"alone-{output}").read_bytes()
    before = Path(output).stat().st_mtime_ns
    assert run(["merge", output, "--remove"]) == 0  # merging twice gives the same
    assert Path(output).read_bytes() == Path(f"alone-{output}").read_bytes()
    assert Path(output).stat().st_mtime_ns > before and not Path(f"{output}.blocks").exists()


def test_an_empty_file_is_translated_to_an_empty_one(place: Path) -> None:
    for output in ("out", "out.gz"):
        (place / "big.txt").write_text("")
        assert shard("2/3", output=output) == 0
        assert merge(output).lines == 0
        content = Path(output).read_bytes()
        assert (gzip.decompress(content) if output.endswith(".gz") else content) == b""


def test_a_shard_without_work_is_not_an_empty_input(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many_lines(place / "big.txt", 600)
    assert shard("1/3") == 0
    for again, words in (("3/3", "shard 3 of 3: the input has only 2 blocks"), ("1/3", "complete before: 1 of the 1")):
        capsys.readouterr()
        assert shard(again) == 0
        printed = capsys.readouterr().err
        assert words in printed and "transduce merge out" in printed
        assert "empty" not in printed


def test_what_differs_between_shards_is_an_error(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many_lines(place / "big.txt")
    assert shard("1/2") == 0
    capsys.readouterr()
    shutil.copytree("run", "other")
    assert run(["train", "--resume", "other", "--updates", "22"]) == 0
    capsys.readouterr()
    other = ["translate", "other", "big.txt", "--output", "out", "--engine", "torch", "--shard", "2/2"]
    for arguments, message in (
        (other, "out.blocks: was started with another model"),
        ([*other, "--ensemble", "run"], "was started with another model"),
    ):
        assert run(arguments) == 73
        assert message in complaint(capsys.readouterr())
    assert shard("2/2", "--beam-size", "3") == 73
    assert "was started with another --beam-size" in complaint(capsys.readouterr())
    assert run(["translate", "run", "big.txt", "--output", "out", "--shard", "2/2", "--block-lines", "1024"]) == 73
    assert "was started with another --block-lines" in complaint(capsys.readouterr())
    content = Path("big.txt").read_text()
    Path("big.txt").write_text(content + "a b\n")
    assert shard("2/2") == 73
    assert "out.blocks: was started with another input" in complaint(capsys.readouterr())
    Path("big.txt").write_text(content[:-2] + "g\n" if content[-2] != "g" else content[:-2] + "a\n")
    assert shard("2/2") == 65  # block 3, the last one, is not what it was; block 1 is complete
    assert "big.txt: lines 1,537 to 1,700 are not what they were" in complaint(capsys.readouterr())
    assert run(["merge", "out"]) == 65
    assert "out.blocks: 1 of 4 blocks are missing (3; the first has lines 1,537" in complaint(capsys.readouterr())
    assert not Path("out").exists()


def test_a_block_of_another_process_is_left_to_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many_lines(place / "big.txt")
    assert shard("1/4") == 0
    capsys.readouterr()
    part = Path("out.blocks/000002.part")
    with locked_file(part, part, "busy"):
        assert shard("1/1") == 75
    assert "another process is translating 1 blocks of shard 1/1" in complaint(capsys.readouterr())
    folder = BlockFolder("out")
    assert [folder.is_complete(number) for number in range(4)] == [True, True, False, True]
    assert shard("1/1") == 0
    assert merge("out").blocks == 4
