"""Table 2 of "Attention Is All You Need": quality against the cost of training, for every translator here.

The paper compares systems whose training took between 10^18 and 10^20 operations. Here all systems are small, learn one
corpus, and get the same number of operations, which are counted (`inspection.cost`: matrix products, forward and
backward); a system whose updates cost more makes fewer of them. So the table shows what a system makes of its
operations, and the processor time shows what the operations cost it.

Every system has about the width of the base Transformer, the dropout of 0.1, and a learning rate of its own with linear
decay. Systems whose BLEU does not differ significantly from the next one's are trained with more seeds.

Differs from the papers: the sizes; the Universal Transformer does not halt early, so that its operations can be
counted; the Extended Neural GPU, whose operations grow with the square of the length, has smaller batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from transduce.config import Table
from transduce.evaluation.significance import compare
from transduce.experiments.finding import Chart, ClaimCheck, Conditions, Finding, Series
from transduce.experiments.study_corpus import find_corpus, generate_corpus
from transduce.experiments.trials import Measured, Trial, Trials

TOLERANCE = 0.02
"""Largest relative difference between the counted operations of two systems."""
FEWEST_UPDATES = 25
"""Rounding to whole updates stays within the tolerance from here on."""


@dataclass(frozen=True, eq=False)
class System:
    """A translator of the comparison."""

    name: str
    kind: str
    """transformer, attention (recurrent with attention), recurrent (without), convolution or universal."""
    model: Mapping[str, Any]
    """[model] for a width of 64; widths are scaled with the study."""
    learning_rate: float
    published: str = "–"
    """BLEU of Table 2, English-German."""
    batch_share: float = 1.0
    """Size of its batches, relative to the study's."""


TRANSFORMER = {"name": "transformer", "norm": "pre", "num_heads": 8, "num_layers": 3, "dropout": 0.1}
RECURRENT = {"embedding_dim": 64, "hidden_dim": 128, "dropout": 0.1}
SYSTEMS = (
    System("Transformer, base", "transformer", {**TRANSFORMER, "model_dim": 64, "ffn_dim": 256}, 0.006, "27.3"),
    System(
        "Transformer, big",
        "transformer",
        {**TRANSFORMER, "num_heads": 16, "model_dim": 128, "ffn_dim": 512},
        0.004,
        "28.4",
    ),
    System("RNN, Sutskever", "recurrent", {"preset": "sutskever", **RECURRENT}, 0.005),
    System("RNN, Cho", "recurrent", {"preset": "cho", **RECURRENT}, 0.005),
    System("RNN, Bahdanau", "attention", {"preset": "bahdanau", **RECURRENT}, 0.005),
    System("RNN, Luong", "attention", {"preset": "luong", **RECURRENT}, 0.005, "24.6 (GNMT)"),
    System(
        "ConvS2S",
        "convolution",
        {"preset": "conv_small", "embedding_dim": 64, "hidden_dim": 64, "dropout": 0.1},
        0.004,
        "25.16",
    ),
    System(
        "ByteNet",
        "convolution",
        {"preset": "bytenet_small", "model_dim": 48, "num_sets": 1, "dropout": 0.1},
        0.004,
        "23.75",
    ),
    System(
        "Extended Neural GPU",
        "convolution",
        {"preset": "extended_neural_gpu_small", "model_dim": 24, "dropout": 0.1},
        0.004,
        batch_share=0.25,
    ),
    System(
        "Universal Transformer",
        "universal",
        {
            "name": "universal",
            "norm": "pre",
            "model_dim": 96,
            "ffn_dim": 384,
            "num_heads": 8,
            "num_layers": 4,
            "halting": False,
            "dropout": 0.1,
        },
        0.005,
    ),
)
WIDTHS = ("model_dim", "ffn_dim", "embedding_dim", "hidden_dim")


@dataclass(frozen=True)
class CostSizes:
    """Sizes of the study."""

    flops: float = 1e12
    """Counted operations of training, for every system."""
    width: float = 1.0
    """Factor of all widths."""
    batch_tokens: int = 512
    vocabulary: int = 1000
    pairs: int = 20_000
    held_out: int = 500
    seeds: int = 3
    """Of systems that are close to their neighbour in BLEU."""
    decoded: int = 100
    """Validation pairs whose BLEU is measured while training."""


FOR_GIVEN_DATA = CostSizes(flops=1.5e13, batch_tokens=1024, vocabulary=2000)
"""For a corpus such as Multi30k, which takes more words and more examples to learn than the generated one."""
QUICK = CostSizes(
    flops=1.2e10, width=0.25, batch_tokens=128, vocabulary=500, pairs=2000, held_out=50, seeds=1, decoded=20
)


def run(conditions: Conditions, sizes: CostSizes | None = None) -> Finding:
    """Measure all systems."""
    corpus = None if conditions.data is None else find_corpus(conditions.data)
    sizes = sizes or (QUICK if conditions.quick else FOR_GIVEN_DATA if corpus else CostSizes())
    corpus = corpus or generate_corpus(conditions.folder, sizes.pairs, sizes.held_out)
    trials = Trials(corpus, {"kind": "bpe", "vocab_size": sizes.vocabulary, "joint": True}, conditions)
    planned = {system: trial_of(system, sizes, trials) for system in SYSTEMS}
    measured = {system: trials.measure(trial) for system, trial in planned.items()}
    if sizes.seeds > 1:
        for system in close_systems(measured, trials):
            measured[system] = trials.measure(planned[system], sizes.seeds)
    setting = {
        "corpus": corpus.name,
        "training pairs": len(trials.prepared.train),
        "test pairs": len(trials.evaluated.sources),
        "vocabulary": trials.sizes.target,
        "operations": sizes.flops,
        "batch tokens": sizes.batch_tokens,
    }
    return finding(measured, trials, setting)


def trial_of(system: System, sizes: CostSizes, trials: Trials) -> Trial:
    """The trial of a system, with as many updates as its operations allow."""
    model: Table = {
        name: max(1, round(value * sizes.width)) if name in WIDTHS else value for name, value in system.model.items()
    }
    batch = max(16, round(sizes.batch_tokens * system.batch_share))
    trial = Trial(system.name.lower().replace(", ", "-").replace(" ", "-"), model, {"batch_tokens": batch})
    updates = max(FEWEST_UPDATES, round(sizes.flops / trials.flops_per_update(trial)))
    training = {
        "batch_tokens": batch,
        "micro_batch_tokens": batch,
        "updates": updates,
        "schedule": "linear",
        "learning_rate": system.learning_rate,
        "warmup": updates // 8,
        "max_grad_norm": 1.0,
        "validate_every": -(-updates // 6),
        "decode_examples": sizes.decoded,
        "keep_last": 1,
    }
    return replace(trial, training=training)


def close_systems(measured: Mapping[System, Measured], trials: Trials) -> list[System]:
    """Return the systems whose BLEU does not differ significantly from that of the next system."""
    ranked = ranking(measured)
    close = set()
    for one, other in pairwise(ranked):
        first, second = (measured[system].results[0].translations for system in (one, other))
        if compare(trials.metric, first, second, trials.evaluated.references).better == "neither":
            close |= {one, other}
    return [system for system in ranked if system in close]


def ranking(measured: Mapping[System, Measured]) -> list[System]:
    """The systems, best BLEU first."""
    return sorted(measured, key=lambda system: -measured[system].score.score)


def finding(measured: Mapping[System, Measured], trials: Trials, setting: Mapping[str, Any]) -> Finding:
    """Make the table, the figure and the checks."""
    rows = tuple(
        (
            system.name,
            found.results[0].parameters,
            found.results[0].updates,
            found.results[0].flops,
            _seconds(found),
            found.results[0].perplexity,
            found.score.score,
            found.score.low,
            found.score.high,
            len(found.results),
            system.published,
        )
        for system, found in ((system, measured[system]) for system in ranking(measured))
    )
    return Finding(
        title="Table 2: quality for the same operations of training",
        claim="for the same operations of training, the Transformer translates better than recurrent and convolutional "
        "systems",
        setting=setting,
        columns=(
            *("system", "parameters", "updates", "operations", "processor seconds", "PPL", "BLEU", "low", "high"),
            *("seeds", "BLEU (paper)"),
        ),
        rows=rows,
        charts=_charts(measured),
        checks=tuple(_checks(measured, trials)),
    )


def _seconds(found: Measured) -> float:
    return sum(result.seconds for result in found.results) / len(found.results)


def _checks(measured: Mapping[System, Measured], trials: Trials) -> list[ClaimCheck]:
    flops = [found.results[0].flops for found in measured.values()]
    spread = max(flops) / min(flops) - 1
    best = {
        kind: best_of(kind, measured) for kind in ("transformer", "attention", "recurrent", "convolution", "universal")
    }
    checks = [ClaimCheck(f"the counted operations differ by {100 * spread:.1f} %, at most 2 %", spread <= TOLERANCE)]
    pairs = [("transformer", kind) for kind in ("attention", "recurrent", "convolution", "universal")]
    for one, other in [*pairs, ("attention", "recurrent")]:
        checks.append(_is_better(measured, trials, best[one], best[other]))
    base, recurrent = SYSTEMS[0], best["attention"]
    seconds = _seconds(measured[base]), _seconds(measured[recurrent])
    checks.append(
        ClaimCheck(
            f"{base.name} needs less processor time for its operations than {recurrent.name}: "
            f"{seconds[0]:.0f} s against {seconds[1]:.0f} s on one thread",
            seconds[0] < seconds[1],
        )
    )
    return checks


def best_of(kind: str, measured: Mapping[System, Measured]) -> System:
    """The system of a kind with the best BLEU on validation pairs: the test pairs are not for choosing."""
    own = [system for system in measured if system.kind == kind]
    return max(own, key=lambda system: measured[system].results[0].curve[-1][1])


def _is_better(measured: Mapping[System, Measured], trials: Trials, one: System, other: System) -> ClaimCheck:
    """Check that a system is better by a paired test of the first seed, and with every seed."""
    first, second = measured[one], measured[other]
    found = compare(
        trials.metric, first.results[0].translations, second.results[0].translations, trials.evaluated.references
    )
    apart = min(first.scores) > max(second.scores)
    overlap = "" if apart or min(second.scores) > max(first.scores) else "; seeds overlap"
    return ClaimCheck(
        f"{one.name} is better than {other.name}: BLEU {first.score.score:.1f} against {second.score.score:.1f} "
        f"(p = {found.p_value:.3f} for the first seed{overlap})",
        found.better == "first" and apart,
    )


def _charts(measured: Mapping[System, Measured]) -> tuple[Chart, ...]:
    ranked: Sequence[System] = ranking(measured)
    curves = []
    for system in ranked:
        result = measured[system].results[0]
        cost = result.flops / result.updates
        curves.append(
            Series(
                system.name,
                tuple(update * cost for update, _ in result.curve),
                tuple(score for _, score in result.curve),
            )
        )
    points = tuple(
        Series(
            system.name,
            (_seconds(measured[system]),),
            (measured[system].score.score,),
            (measured[system].score.low,),
            (measured[system].score.high,),
            joined=False,
        )
        for system in ranked
    )
    return (
        Chart("BLEU while training, on validation pairs", "operations", "BLEU", tuple(curves)),
        Chart("BLEU on test pairs, with 95 % intervals", "processor seconds", "BLEU", points, log_x=True),
    )
