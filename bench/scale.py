"""Time and memory of preparing and opening large corpora: `make bench-scale`.

Writes synthetic pairs (sentences of about eight words, by Zipf's law) to a temporary folder, prepares them, and trains
a tiny model on them until its first update is done, each in a process of its own. Memory is
the peak resident set size of a process, mapped files included. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measuring import measure_command

CHUNK = 100_000
WORDS = 50_000
TRAINING = ("model.preset=tiny", "training.updates=1", "training.batch_tokens=4096", "training.log_every=1")


def vocabulary(seed: int) -> np.ndarray:
    """Return random words, the frequent ones short."""
    random = np.random.default_rng(seed)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words: dict[str, None] = {}
    while len(words) < WORDS:
        length = 1 + int(np.log(len(words) + 3) / 3 + random.random())
        words["".join(random.choice(syllables, length))] = None
    return np.array(list(words), dtype=object)


def write_pairs(folder: Path, size: int) -> tuple[Path, Path]:
    """Write two line-aligned files of synthetic sentences, a chunk at a time, deterministically."""
    source_words, target_words = vocabulary(1), vocabulary(2)
    reached = np.cumsum(1 / np.arange(3, WORDS + 3))
    reached /= reached[-1]
    random = np.random.default_rng(3)
    paths = folder / f"{size}.source", folder / f"{size}.target"
    with paths[0].open("w") as sources, paths[1].open("w") as targets:
        for start in range(0, size, CHUNK):
            lengths = random.integers(4, 13, min(CHUNK, size - start))
            words = np.searchsorted(reached, random.random(int(lengths.sum())))
            ends = np.cumsum(lengths).tolist()
            for file, known in ((sources, source_words), (targets, target_words)):
                text, begin, lines = known[words].tolist(), 0, []
                for end in ends:
                    lines.append(" ".join(text[begin:end]))
                    begin = end
                file.write("\n".join(lines) + "\n")
    return paths


def trial(folder: Path, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure one size; delete all files afterwards."""
    transduce = [sys.executable, "-m", "transduce"]
    source, target = write_pairs(folder, size)
    print(f"{size:,} pairs: {(source.stat().st_size + target.stat().st_size) / 2**20:,.0f} MiB of text", flush=True)
    prepared, run = folder / "prepared", folder / "run"
    command = ["prepare", "--source", str(source), "--target", str(target), "--output", str(prepared)]
    preparing = measure_command([*transduce, *command])
    print(f"  prepared in {preparing['seconds']:,.0f} s with {preparing['peak_bytes'] / 2**20:,.0f} MiB", flush=True)
    settings = [part for setting in TRAINING for part in ("--set", setting)]
    command = ["train", "--prepared", str(prepared), *settings, "--output", str(run)]
    journal = run / "journal.jsonl"
    starting = measure_command(
        [*transduce, *command], lambda: journal.is_file() and b'"update"' in journal.read_bytes()
    )
    print(f"  first update after {starting['seconds']} s with {starting['peak_bytes'] / 2**20:,.0f} MiB", flush=True)
    for path in (source, target):
        path.unlink()
    shutil.rmtree(prepared)
    shutil.rmtree(run)
    return preparing, starting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=[1_000_000, 20_000_000], help="numbers of pairs")
    parser.add_argument("--folder", help="parent of the temporary folder; 20 million pairs take about 9 GB")
    options = parser.parse_args()
    found: dict[str, Any] = {"prepare": {}, "start": {}}
    with tempfile.TemporaryDirectory(prefix="transduce-scale-", dir=options.folder) as folder:
        for size in options.sizes:
            found["prepare"][str(size)], found["start"][str(size)] = trial(Path(folder), size)
    few, many = str(min(options.sizes)), str(max(options.sizes))
    found["ratio"] = {
        verb: round(found[verb][many]["peak_bytes"] / found[verb][few]["peak_bytes"], 3)
        for verb in ("prepare", "start")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
