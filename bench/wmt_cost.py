"""Time and cost of the paper's two WMT14 models, from counted operations and a machine's peak.

    python bench/wmt_cost.py
    python bench/wmt_cost.py --machine "mine,90,0.35,1,0.60"

A machine is given as name, peak TFLOP/s, utilisation in training, number of machines, and price per machine and hour.
Operations are counted (`transduce cost`); steps and tokens are the paper's.
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

from transduce.inspection.cost import Workload, estimate
from transduce.models.catalog import preset
from transduce.models.interface import VocabularySizes

VOCABULARY, LENGTH, BATCH = 37_000, 28, 25_000
"""The paper's joint vocabulary and target tokens of a batch (section 5.1); the length of a sentence is assumed."""
STEPS = {"paper_base": 100_000, "paper_big": 300_000}


class Machine(NamedTuple):
    """Something to train on."""

    name: str
    peak: float
    """TFLOP/s of matrix products, dense."""
    share: float
    devices: int
    price: float
    """Of one for an hour."""


MACHINES = [
    Machine("two CPU cores, float32", 0.178, 0.68, 1, 0.10),
    Machine("L4, bfloat16", 121, 0.30, 1, 0.70),
    Machine("RTX 4090, bfloat16", 165, 0.30, 1, 0.50),
    Machine("A100, bfloat16", 312, 0.30, 1, 2.00),
    Machine("8 × A100, bfloat16", 312, 0.27, 8, 2.00),
    Machine("H100 SXM, bfloat16", 989, 0.30, 1, 3.00),
]


def operations(name: str) -> float:
    """Return the operations of training a model."""
    _, config = preset(name)
    sizes = VocabularySizes(VOCABULARY, VOCABULARY)
    cost = estimate(config, sizes, Workload(source_length=LENGTH, target_length=LENGTH))
    return float(cost.flops_per_token["train"]) * BATCH * STEPS[name]


def hours(machine: Machine, work: float) -> float:
    """Return the hours that a machine takes."""
    return work / (machine.devices * machine.peak * 1e12 * machine.share) / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and cost of WMT14 base and big.")
    parser.add_argument("--machine", action="append", default=[], metavar="NAME,TFLOPS,SHARE,COUNT,PRICE")
    given = [text.split(",") for text in parser.parse_args().machine]
    machines = [Machine(name, float(p), float(s), int(n), float(price)) for name, p, s, n, price in given] or MACHINES
    work = {name: operations(name) for name in STEPS}
    for name, found in work.items():
        print(f"{name}: {found:.2e} operations")
    print("\n| machine | peak, TFLOP/s | share | base | big |\n|---|---|---|---|---|")
    for machine in machines:
        times = [hours(machine, found) for found in work.values()]
        bills = [f"{time:,.1f} h, {time * machine.devices * machine.price:,.0f}" for time in times]
        print(f"| {machine.name} | {machine.peak:g} | {machine.share:.0%} | {bills[0]} | {bills[1]} |")
    print(
        json.dumps(
            {machine.name: {name: round(hours(machine, work[name]), 1) for name in work} for machine in machines}
        )
    )


if __name__ == "__main__":
    main()
