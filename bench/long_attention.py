"""Time and memory of attention on long texts, by kernel: `make bench-long-attention`.

A training step (forwards, backwards, AdamW) of two encoder blocks of 256 with 4 heads, one text of 1K, 2K or 4K tokens.
`full_plain` computes all attention weights; `full_fused` is the same attention by torch's fused kernel, which stores
none of them. Time and memory of each point are measured in a process of their own each (forked,
so that torch is loaded once). Memory is the increase of the peak resident set size over its value after a
step of such a model on a short text: weights, gradients and moments count, code does not. The C library returns freed
memory at once here, so that tensors are counted and not its free lists. Time is processor time, with one thread by
default, so that other work on the machine hardly affects it. The median of the steps after the first one counts, and
the best of the alternating rounds. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transduce.models.block import BlockConfig, EncoderBlock
from transduce.nn.attention.multi_head import MultiHeadAttention
from transduce.nn.initialization import initialize

LENGTHS = (1024, 2048, 4096)
BLOCKS, STEPS, SHORT = 2, 4, 300
MMAP_THRESHOLD = -3
"""glibc's setting for the size from which freed memory is returned at once."""
CONTENDERS: dict[str, dict[str, Any]] = {
    "full_plain": {},
    "full_fused": {},
    "window": {"attention": "window", "window": 128},
    "strided": {"attention": "strided", "stride": 64},
    "low_rank": {"attention": "low_rank", "rank": 128},
    "linear": {"attention": "linear"},
    "performer": {"attention": "performer", "features": 128},
    "hashed": {"attention": "hashed", "hash_buckets": 32, "hash_rounds": 2, "hash_reach": 64},
}
SCALING = ("window", "low_rank", "linear", "performer")
"""Kernels with targets: at most 3.5 × the memory from 1K to 4K, and 3 × faster than `full_plain` at 4K."""


def peak_bytes() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_bytes() -> int:
    """Current resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def memory(name: str, length: int) -> float:
    """Peak bytes of two training steps: the second includes the optimizer's moments."""
    ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 2**16)
    steps(name, SHORT, 2)
    gc.collect()
    before = resident_bytes()
    steps(name, length, 2)
    return peak_bytes() - before


def seconds(name: str, length: int) -> float:
    """Seconds of one training step."""
    return statistics.median(steps(name, length, STEPS)[1:])


def steps(name: str, length: int, count: int) -> list[float]:
    """Build a model and run some training steps; return their costs."""
    torch.manual_seed(1)
    config = BlockConfig(
        model_dim=256, num_heads=4, ffn_dim=1024, norm="pre", dropout=0.0, max_positions=length, **CONTENDERS[name]
    )
    blocks = nn.ModuleList(EncoderBlock(config) for _ in range(BLOCKS))
    initialize(blocks, seed=1)
    if name == "full_plain":
        for module in blocks.modules():
            if isinstance(module, MultiHeadAttention):  # a hooked attention computes its weights
                module.weight.register_forward_hook(lambda *_: None)
    trained = [parameter for parameter in blocks.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    text = torch.randn(1, length, 256)
    took = []
    for _ in range(count):
        began = time.process_time()
        hidden = text
        for block in blocks:
            hidden = block(hidden, None)
        hidden.square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        took.append(time.process_time() - began)
    return took


def apart(measure: Callable[[str, int], float], name: str, length: int, threads: int) -> float:
    """Measure one point in a process of its own."""
    forking = multiprocessing.get_context("fork")
    ours, theirs = forking.Pipe(duplex=False)

    def work() -> None:
        torch.set_num_threads(threads)
        theirs.send(measure(name, length))

    process = forking.Process(target=work)
    process.start()
    theirs.close()
    found: float = ours.recv()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    found: dict[str, dict[int, list[dict[str, float]]]] = {name: {n: [] for n in LENGTHS} for name in CONTENDERS}
    for _ in range(options.rounds):
        for length in LENGTHS:
            for name in CONTENDERS:
                work = {"bytes": memory, "seconds": seconds}
                point = {key: apart(measure, name, length, options.threads) for key, measure in work.items()}
                found[name][length].append(point)
                print(f"{name} at {length:,}: {point['bytes'] / 2**20:,.0f} MiB, {point['seconds']:.3f} s", flush=True)
    report(found)


def report(found: dict[str, dict[int, list[dict[str, float]]]]) -> None:
    """Print a table, whether the targets are met, and everything as JSON."""
    best = {
        name: {
            length: {key: min(point[key] for point in points) for key in ("seconds", "bytes")}
            for length, points in by_length.items()
        }
        for name, by_length in found.items()
    }
    short, long = LENGTHS[0], LENGTHS[-1]
    plain = best["full_plain"][long]["seconds"]
    growth = {name: points[long]["bytes"] / points[short]["bytes"] for name, points in best.items()}
    speed = {name: plain / points[long]["seconds"] for name, points in best.items()}
    print(f"{'':12} {'MiB':>27}  {'milliseconds per step':>30}")
    print(f"{'':12} " + " ".join(f"{n:>8,}" for n in LENGTHS) + "   " + " ".join(f"{n:>9,}" for n in LENGTHS))
    for name, points in best.items():
        memory = " ".join(f"{points[n]['bytes'] / 2**20:8,.0f}" for n in LENGTHS)
        times = " ".join(f"{points[n]['seconds'] * 1000:9,.0f}" for n in LENGTHS)
        print(f"{name:12} {memory}   {times}   memory × {growth[name]:.1f}, {speed[name]:.1f} × as fast as plain")
    kept = growth["full_plain"] >= 8 and all(growth[name] <= 3.5 and speed[name] >= 3 for name in SCALING)
    print("the targets are met" if kept else "below target")
    rounded = {
        "memory_growth": {name: round(value, 2) for name, value in growth.items()},
        "speed_over_full_plain": {name: round(value, 2) for name, value in speed.items()},
        "kept": kept,
    }
    print(json.dumps(rounded))


if __name__ == "__main__":
    main()
