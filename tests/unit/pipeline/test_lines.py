"""Blocks that were written are not written again, and a block that was cut off is."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import CannotCreate
from transduce.pipeline.lines import BLOCK, Block, finish_blocks, write_blocks


def test_an_interrupted_file_is_resumed_after_its_last_whole_block(tmp_path: Path) -> None:
    inputs = [(f"source {number}", f"target\t{number}") for number in range(2 * BLOCK + 100)]
    seen: list[int] = []

    def double(block: Block) -> Block:
        seen.append(len(block))
        return [pair for pair in block for _ in range(2)]

    def stop(block: Block) -> Block:
        if len(seen) == 2:
            raise KeyboardInterrupt
        return double(block)

    def expected() -> str:
        return "".join(f"target {number}\n" * 2 for number in range(len(inputs)))

    output, both = tmp_path / "pairs.tsv", (tmp_path / "source.txt", tmp_path / "target.txt")
    with pytest.raises(KeyboardInterrupt):
        write_blocks(output, inputs, stop, lambda count: None, {})
    (partial,) = tmp_path.iterdir()
    with partial.open("ab") as file:
        file.write(b"half a line")
    assert write_blocks(output, inputs, double, lambda count: None, {}) == 2 * len(inputs)
    assert seen == [BLOCK, BLOCK, 100]
    finish_blocks(output, both)
    assert both[1].read_text() == expected()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.txt", "target.txt"]


@pytest.mark.parametrize(
    ("inputs", "job"), [([("a", "b")], {"model": 2}), ([("a", "c")], {"model": 1}), ([], {"model": 1})]
)
def test_another_job_does_not_continue_an_interrupted_one(
    tmp_path: Path, inputs: list[tuple[str, str]], job: dict[str, int]
) -> None:
    output = tmp_path / "pairs.tsv"
    write_blocks(output, [("a", "b")], list, lambda count: None, {"model": 1})
    with pytest.raises(CannotCreate, match="another model"):
        write_blocks(output, inputs, list, lambda count: None, job)
    assert write_blocks(output, [("a", "b")], list, lambda count: None, {"model": 1}) == 1
