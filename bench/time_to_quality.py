"""Time from two files to a translation model of a given quality, beside peers: `make bench-time-to-quality`.

Multi30k, English to German, raw text. Each contender runs alone, in a process of its own, from the command on: reading
the files, training the tokenizer, training, and a validation after every epoch. Quality is the loss of all validation
pairs in bits per byte of the target, so that tokenizers do not matter; the levels are those at which the greedy
translations of a run of ours, which is not timed, first have 30, 35 and 38 BLEU. Times are wall-clock without pauses of
the process; how much of the machine other programs took is printed beside them.

Ours gets nothing but the files, with two seeds. The peers get what is documented for small data: torch.nn.Transformer
as PyTorch's own tutorial trains it on this corpus (https://pytorch.org/tutorials/beginner/translation_transformer.html:
3 + 3 layers of 512, 128 sentences, Adam at 1e-4), and by the published recipe for this corpus (Wu et al. 2021,
arXiv 2105.14462: 4 + 4 layers of 128, dropout 0.3, 8,192 tokens, 0.005 with 2,000 updates of warm-up and inverse square
root, label smoothing 0.1); Hugging Face's Seq2SeqTrainer with Marian by the same recipe, since its documents have none
for training from random weights. All in float32 and in bfloat16 (autocast), with our tokenizer, which is a favour to
the tutorial. The control is our recipe in plain torch: what it takes longer is the engine's part. Its variants take one
thing away each, so that time = engine × precision × optimizer × schedule.

Curves are kept per machine and reused, stopped contenders continue; `--again NAME` measures one anew. A peer stops at
the last level, or after eight times our time, and its ratio is then a lower bound. The last line is one JSON object,
theirs over ours. `--quick` is a smoke test, whose levels are those that ours reached.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from defaults import multi30k, write_files
from quality_contenders import CONTENDERS, FACTORS, LEVELS, OURS, PEERS, Job
from quality_curve import bits_at, points, share_of_others, time_to

from transduce.config import Table

BLEU = {"30": 30.0, "35": 35.0, "38": 38.0}
"""The qualities: BLEU (13a) of greedy translations of all validation pairs."""
LEVELS_SEED = 3
"""Seed of the run that turns them into bits; no run that is timed has it."""
QUICK_PAIRS, QUICK_EPOCHS = 600, 4.0
LONGEST = 8.0
"""Times of ours after which a peer is stopped."""
DISTURBED = 0.1
"""Part of the machine that others took, from which on a time is marked."""

Times = dict[str, float]


def machine() -> str:
    """Name of this kind of machine, as a folder."""
    name = platform.processor() or platform.machine()
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        name = found.group(1) if found else name
    except OSError:
        pass
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def run(name: str, seed: int, options: argparse.Namespace, most_seconds: float, last_level: float) -> Path:
    """Run a contender, or reuse what it has measured; return its folder."""
    folder: Path = options.work / f"{name}-{seed}"
    if not (folder / "done").exists():
        command = [sys.executable, __file__, "--contender", name, "--seed", str(seed), "--work", str(options.work)]
        command += ["--threads", str(options.threads), "--most-seconds", str(most_seconds)]
        command += ["--last-level", str(last_level)]
        command += ["--launched", str(time.time()), *(["--quick"] if options.quick else [])]
        print(f"{name}, seed {seed}", flush=True)
        subprocess.run(command, check=True)
        (folder / "done").touch()
    return folder


def contend(options: argparse.Namespace) -> None:
    """Be a contender."""
    job = Job(
        files=json.loads((options.work / "files.json").read_text(encoding="utf-8")),
        folder=options.work / f"{options.contender}-{options.seed}",
        seed=options.seed,
        threads=options.threads,
        launched=options.launched,
        most_seconds=options.most_seconds,
        last_level=options.last_level,
        epochs=QUICK_EPOCHS if options.quick else None,
    )
    job.folder.mkdir(parents=True, exist_ok=True)
    CONTENDERS[options.contender](job)


def write_corpus(options: argparse.Namespace) -> None:
    """Write the files that everybody gets."""
    splits = multi30k(options.data)
    splits["test"] = []
    if options.quick:
        splits = {"train": splits["train"][:QUICK_PAIRS], "validation": splits["validation"][:100], "test": []}
    table = write_files(splits, options.work / "files")
    (options.work / "files.json").write_text(json.dumps(table), encoding="utf-8")


def measured(name: str, folder: Path, levels: Table, threads: int) -> Times:
    """Seconds to each level, those that were reached."""
    path = folder / "curve.jsonl"
    curve, others = points(path), share_of_others(path, threads)
    found = {level: time_to(curve, bits) for level, bits in levels.items()}
    shown = ", ".join(f"{level}: {'not reached' if t is None else f'{t:.0f} s'}" for level, t in found.items())
    best, last = min(point.bits for point in curve), curve[-1]
    mark = " (DISTURBED)" if others > DISTURBED else ""
    print(
        f"{name:24} {shown}; best {best:.4f}, {last.update:,} updates in {last.seconds:.0f} s; "
        f"others took {100 * others:.0f} % of the machine{mark}"
    )
    return {level: seconds for level, seconds in found.items() if seconds is not None}


def compare(found: dict[str, Times], ends: Times, ours: Times, level: str) -> dict[str, float]:
    """Each peer's time to a level over ours; for one that did not reach it, the time after which it ended."""
    ratios = {}
    for peer, names in PEERS.items():
        run = [name for name in names if name in found]
        reached = [found[name][level] for name in run if level in found[name]]
        if level not in ours or not run:
            continue
        ratio = min(reached or [ends[name] for name in run]) / ours[level]
        ratios[peer] = round(ratio, 2)
        print(f"{peer} over ours, to {level} BLEU: {'' if reached else 'at least '}{ratio:.2f}")
    return ratios


def report(folders: dict[str, list[Path]], levels: Table, threads: int) -> None:
    """Print times, ratios and factors; the last line is JSON."""
    found, ends = {}, {}
    for name, runs in folders.items():
        times = [measured(f"{name}, {folder.name[-1]}", folder, levels, threads) for folder in runs]
        shared = [level for level in levels if all(level in one for one in times)]
        found[name] = {level: statistics.mean(one[level] for one in times) for level in shared}
        ends[name] = statistics.mean(points(folder / "curve.jsonl")[-1].seconds for folder in runs)
    ours = found.get(OURS, {})
    result = {f"time_to_{level}": compare(found, ends, ours, level) for level in ("35", "38")}
    for level in levels:
        factors = [
            f"{factor} × {found[slow][level] / found[fast][level]:.2f}"
            for factor, (slow, fast) in FACTORS.items()
            if level in found.get(slow, {}) and level in found.get(fast, {})
        ]
        print(f"to {level} BLEU: {', '.join(factors) or 'no factors'}")
    print(json.dumps(result))


def last(levels: Table) -> float:
    """The best quality, in bits."""
    return min(levels.values(), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the corpora")
    parser.add_argument("--work", type=Path, help="folder for runs and curves")
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--again", nargs="*", default=[], choices=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2, help="seeds of ours; the others have one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--launched", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--most-seconds", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--last-level", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        contend(options)
        return
    options.work = options.work or Path("runs/time-to-quality") / f"{machine()}{'-quick' * options.quick}"
    for name in options.again:
        for folder in options.work.glob(f"{name}-[0-9]*"):
            shutil.rmtree(folder)
    write_corpus(options)
    seeds = range(1, 2 if options.quick else options.seeds + 1)
    folders, longest, levels = {}, float("inf"), dict[str, float]()
    if not options.quick:
        levels = bits_at(run(LEVELS, LEVELS_SEED, options, longest, 0.0) / "curve.jsonl", "bleu", BLEU)
        print(f"bits per byte at {', '.join(f'{name} BLEU: {bits:.4f}' for name, bits in levels.items())}")
    if OURS in options.only:
        folders[OURS] = [run(OURS, seed, options, longest, 0.0) for seed in seeds]
        curves = [points(folder / "curve.jsonl") for folder in folders[OURS]]
        if options.quick:
            found = sorted((point.bits for point in curves[0]), reverse=True)
            levels = dict(zip(BLEU, found[-len(BLEU) :], strict=True))
        times = [time for curve in curves if (time := time_to(curve, last(levels)))]
        longest = LONGEST * max(times) if times else longest
    for name in options.only:
        if name not in (OURS, LEVELS):
            folders[name] = [run(name, 1, options, longest, last(levels))]
    report(folders, levels, options.threads)


if __name__ == "__main__":
    main()
