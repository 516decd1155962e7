"""Batching while decoding: throughput against latency, by batch size and context.

A step of a batch reads the weights once for all of its rows, so that one product with a matrix takes the place of many
with a vector; but each row has keys and values of its own, which nothing shares. Latency is the time of one step,
throughput the tokens per second of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from transduce.experiments.decoding import Decode, DecodingSetting, decoder, texts
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, shortest_times, silent

FEW = 8
"""Batch size up to which rows are said to be free."""


DECODER = DecodingSetting(width=512, num_heads=8)
"""Wider than that of `decoding`: reading its weights takes longer than calling its operations."""


@dataclass(frozen=True)
class BatchingSetting:
    """Batch sizes and contexts."""

    decoder: DecodingSetting = DECODER
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """In rising order from 1."""
    contexts: tuple[int, ...] = (16, 512)
    """A short and a long one."""
    steps: int = 4
    repeats: int = 5


DEFAULT = BatchingSetting()
Latency = dict[tuple[int, int], float]
"""Seconds of one step by (context, batch size)."""


def measure(seed: int = 1, report: Report = silent, setting: BatchingSetting = DEFAULT) -> Finding:
    """Time steps of every batch size after texts of both lengths."""
    found = latencies(setting, seed, report)
    short, long = setting.contexts[0], setting.contexts[-1]
    return Finding(
        title="Batching: throughput against latency",
        claim="decoding several texts together multiplies throughput and hardly costs latency, since the weights are "
        "read once for all of them.",
        setting={
            "layers": setting.decoder.num_layers,
            "width": setting.decoder.width,
            "steps": setting.steps,
            "timed rounds": setting.repeats,
        },
        columns=(
            "context",
            "batch size",
            "latency, ms",
            "latency, × one text",
            "tokens per second",
            "throughput, × one text",
        ),
        rows=tuple(
            (
                *(context, rows, 1e3 * seconds, seconds / found[context, 1], rows / seconds),
                rows * found[context, 1] / seconds,
            )
            for (context, rows), seconds in found.items()
        ),
        charts=(
            Chart(
                "Throughput against latency",
                "milliseconds per step",
                "tokens per second",
                tuple(
                    Series(
                        f"context {context:,}",
                        tuple(1e3 * found[context, rows] for rows in setting.batches),
                        tuple(rows / found[context, rows] for rows in setting.batches),
                    )
                    for context in (short, long)
                ),
                log_x=True,
                log_y=True,
            ),
        ),
        checks=checks(setting, found),
    )


def latencies(setting: BatchingSetting, seed: int, report: Report) -> Latency:
    """Return the seconds of one step."""
    model = decoder(setting.decoder, seed)
    found: Latency = {}
    with torch.no_grad():
        for context in setting.contexts:
            works = {
                (context, rows): Decode(model, texts(setting.decoder, rows, context, seed), setting.steps)
                for rows in setting.batches
            }
            for place, seconds in shortest_times(works, setting.repeats).items():
                found[place] = seconds / setting.steps
            report("contexts", context)
    return found


def checks(setting: BatchingSetting, found: Latency) -> tuple[ClaimCheck, ...]:
    """Check the claim on the latencies."""
    short, long, most = setting.contexts[0], setting.contexts[-1], setting.batches[-1]
    gain = {context: most * found[context, 1] / found[context, most] for context in (short, long)}
    slower = {context: found[context, FEW] / found[context, 1] for context in (short, long)}
    rising = all(more / found[short, more] > fewer / found[short, fewer] for fewer, more in pairwise(setting.batches))
    return (
        ClaimCheck(f"throughput grows with every larger batch (context {short:,})", rising),
        ClaimCheck(
            f"{FEW} texts take less than twice as long as one ({slower[short]:.1f} times as long)", slower[short] < 2
        ),
        ClaimCheck(
            f"throughput grows in proportion to the batch: {gain[short]:.1f} times with {most} texts",
            gain[short] > 0.8 * most,
        ),
        ClaimCheck(
            f"so it does after a long context, where each text has a large cache of its own: {gain[long]:.1f} times at "
            f"{long:,} tokens",
            gain[long] > 0.8 * gain[short],
        ),
    )
