"""kill -9 of any process of a translation in shards: run again until done and merged, it is the file of one process."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from tests.torture.example import Run, Tally, sizes
from tests.torture.fork_server import ForkServer

SHARDS, KILLS = 3, 3
"""And most kills of each in a trial."""
OPTIONS = ("--engine", "torch", "--threads", "1", "--format", "text")


def many_lines(path: Path, lines: int) -> None:
    draw = random.Random(7)
    path.write_text("".join(" ".join(draw.choices("abcdefg", k=draw.randint(0, 6))) + "\n" for _ in range(lines)))


@sizes(1, 20)
def test_shards_that_are_killed_and_run_again_give_the_file_of_one_process(
    size: int, fork_server: ForkServer, whole: Run, place: Path, tally: Tally
) -> None:
    draw, big, alone = random.Random(size), place / "big.txt", place / "alone"
    many_lines(big, 4000 if size > 1 else 1500)
    began = fork_server.run("translate", whole.folder, big, "--output", alone, *OPTIONS)
    assert began.code == 0, began
    kills = merges = 0
    for trial in range(size):
        output, blocks = place / f"out-{trial}", draw.choice((512, 1024))
        left = {number: draw.randint(1, KILLS) for number in range(1, SHARDS + 1)}
        while left:
            running = {
                number: fork_server.start(
                    *("translate", whole.folder, big, "--output", output, "--shard", f"{number}/{SHARDS}"),
                    *("--block-lines", str(blocks), *OPTIONS),
                )
                for number in left
            }
            moments = sorted((draw.uniform(0.0, began.seconds), number) for number in left if left[number])
            for moment, number in moments:
                time.sleep(max(0.0, running[number].began + moment - time.monotonic()))
                fork_server.kill(running[number])
            for number, child in running.items():
                outcome = fork_server.wait(child)
                assert outcome.code in (0, -signal.SIGKILL), outcome
                if outcome.code == 0:
                    del left[number]
                else:
                    left[number] -= 1
                    kills += 1
        merges += fork_server.kill_after(draw.uniform(0.0, 0.05), "merge", output).code != 0
        assert not output.exists() or output.read_bytes() == alone.read_bytes()
        merged = fork_server.run("merge", output, "--remove")
        assert merged.code == 0, merged
        assert output.read_bytes() == alone.read_bytes()
        assert not Path(f"{output}.blocks").exists()
        output.unlink()
    assert kills >= size
    note = f"; {kills} kills of shards, {merges} of merges"
    tally("kill -9 of processes of a translation in shards, merged byte for byte", size, note)
