"""Table 3 of "Attention Is All You Need": variations of the Transformer, each with the paper's relative change.

A small base model takes the place of the paper's, and every row changes it by the same factor: half the heads, a
quarter of the key size, two thirds of the layers. All are trained for the same number of updates on the same batches
and evaluated on validation data, as in the paper. Of interest are the direction of each difference and the order of all
rows, not the numbers.

A row whose perplexity is close to that of the base model is trained with more seeds. All rows with several seeds say
how much a seed matters, and a difference counts only if it is larger than that.

Differs from the paper: pre-norm and a linear decay of the learning rate, which learn far more in a short training; one
learning rate for all widths; greedy search; the best of four checkpoints by validation loss, not an average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transduce.config import Table
from transduce.evaluation.significance import Interval, SeedNoise, tau_interval
from transduce.experiments.finding import Chart, ClaimCheck, Conditions, Finding, Series
from transduce.experiments.study_corpus import find_corpus, generate_corpus
from transduce.experiments.trials import Measured, Trial, Trials

Direction = Literal["better", "worse", "same"]
Verdict = Literal["as in the paper", "not distinguishable", "opposite", "differs"]

EQUAL = 0.02
"""Relative difference of perplexity up to which two rows count as equal."""
RESOLUTION = 0.04
"""Largest half-width of an interval of a difference that still shows that two rows are equal."""


@dataclass(frozen=True)
class PaperRow:
    """One row of the paper's table: what changes, and what was published."""

    group: str
    change: str
    """With the paper's numbers."""
    perplexity: float
    bleu: float
    model: Mapping[str, float]
    """Settings of [model] that are multiplied."""
    fixed: Mapping[str, Any]
    """Settings of [model] or [training] with a value of their own."""

    @property
    def name(self) -> str:
        return f"{self.group} {self.change}".strip()


def _row(group: str, change: str, perplexity: float, bleu: float, **model: float) -> PaperRow:
    return PaperRow(group, change, perplexity, bleu, model, {})


def _fixed(group: str, change: str, perplexity: float, bleu: float, **fixed: Any) -> PaperRow:
    return PaperRow(group, change, perplexity, bleu, {}, fixed)


BASE = _row("base", "", 4.92, 25.8)
ROWS = (
    BASE,
    _row("A", "h = 1", 5.29, 24.9, num_heads=1 / 8),
    _row("A", "h = 4", 5.00, 25.5, num_heads=1 / 2),
    _row("A", "h = 16", 4.91, 25.8, num_heads=2),
    _row("A", "h = 32", 5.01, 25.4, num_heads=4),
    _row("B", "d_k = 16", 5.16, 25.1, key_dim=1 / 4),
    _row("B", "d_k = 32", 5.01, 25.4, key_dim=1 / 2),
    _row("C", "N = 2", 6.11, 23.7, num_layers=1 / 3),
    _row("C", "N = 4", 5.19, 25.3, num_layers=2 / 3),
    _row("C", "N = 8", 4.88, 25.5, num_layers=4 / 3),
    _row("C", "d = 256", 5.75, 24.5, model_dim=1 / 2),
    _row("C", "d = 1024", 4.66, 26.0, model_dim=2),
    _row("C", "d_ff = 1024", 5.12, 25.4, ffn_dim=1 / 2),
    _row("C", "d_ff = 4096", 4.75, 26.2, ffn_dim=2),
    _fixed("D", "dropout 0", 5.77, 24.6, dropout=0.0),
    _fixed("D", "dropout 0.2", 4.95, 25.5, dropout=0.2),
    _fixed("D", "smoothing 0", 4.67, 25.3, label_smoothing=0.0),
    _fixed("D", "smoothing 0.2", 5.47, 25.7, label_smoothing=0.2),
    _fixed("E", "learned positions", 4.92, 25.7, positions="learned"),
)
"""The table without `big`, which was trained three times as long."""


@dataclass(frozen=True)
class TableSizes:
    """Sizes of the study; the base model is the paper's in small: h = 8, d_ff = 4 d, N divisible by 3."""

    model_dim: int = 64
    num_layers: int = 3
    num_heads: int = 8
    batch_tokens: int = 512
    updates: int = 1000
    learning_rate: float = 0.006
    vocabulary: int = 1000
    pairs: int = 20_000
    """Training pairs, where the corpus is generated."""
    held_out: int = 1000
    seeds: int = 3
    """Of the base model, and of rows close to it."""
    close: float = 0.1
    """Relative difference of perplexity from the base model below which a row is trained with more seeds."""

    def base(self) -> Table:
        """The base model."""
        width = self.model_dim // self.num_heads
        sizes = {"model_dim": self.model_dim, "num_heads": self.num_heads, "num_layers": self.num_layers}
        sizes |= {"ffn_dim": 4 * self.model_dim}
        return {"name": "transformer", "norm": "pre", **sizes, "key_dim": width, "value_dim": width}

    def training(self) -> Table:
        """Optimisation, the same for all rows."""
        return {
            "batch_tokens": self.batch_tokens,
            "micro_batch_tokens": self.batch_tokens,
            "updates": self.updates,
            "schedule": "linear",
            "learning_rate": self.learning_rate,
            "warmup": self.updates // 8,
            "max_grad_norm": 1.0,
            "validate_every": -(-self.updates // 4),
            "decode_examples": 0,
            "keep_last": 1,
        }


FOR_GIVEN_DATA = TableSizes(batch_tokens=2048, updates=2000, vocabulary=2000)
"""For a corpus such as Multi30k, which takes more words and more examples to learn than the generated one."""
QUICK = TableSizes(model_dim=32, updates=100, vocabulary=500, pairs=4000, held_out=100, seeds=2, close=0.0)


@dataclass(frozen=True)
class MeasuredRow:
    """One row of the paper, and what was measured of its small model."""

    row: PaperRow
    found: Measured


def run(conditions: Conditions, sizes: TableSizes | None = None) -> Finding:
    """Measure all rows."""
    corpus = None if conditions.data is None else find_corpus(conditions.data)
    sizes = sizes or (QUICK if conditions.quick else FOR_GIVEN_DATA if corpus else TableSizes())
    corpus = corpus or generate_corpus(conditions.folder, sizes.pairs, sizes.held_out)
    tokenizer = {"kind": "bpe", "vocab_size": sizes.vocabulary, "joint": True}
    trials = Trials(corpus, tokenizer, conditions, evaluated="validation")
    base = _measure(trials, BASE, sizes, sizes.seeds)
    measured = [base, *(_measured_closely(trials, row, sizes, base) for row in ROWS[1:])]
    setting = {
        "corpus": corpus.name,
        "training pairs": len(trials.prepared.train),
        "evaluated pairs": len(trials.evaluated.sources),
        "vocabulary": trials.sizes.target,
        "d_model": sizes.model_dim,
        "layers": sizes.num_layers,
        "heads": sizes.num_heads,
        "updates": sizes.updates,
        "batch tokens": sizes.batch_tokens,
    }
    return finding(measured, setting)


def trial_of(row: PaperRow, sizes: TableSizes) -> Trial:
    """The trial of a row: the base model with the row's change."""
    model, training = sizes.base(), sizes.training()
    for name, factor in row.model.items():
        model[name] = max(1, round(model[name] * factor))
    if {"num_heads", "model_dim"} & row.model.keys():  # the paper keeps h · d_k = d
        model["key_dim"] = model["value_dim"] = max(1, model["model_dim"] // model["num_heads"])
    for name, value in row.fixed.items():
        (training if name == "label_smoothing" else model)[name] = value
    slug = row.name.lower().replace(" = ", "-").replace(" ", "-").replace("_", "")
    return Trial(slug, model, training)


def _measure(trials: Trials, row: PaperRow, sizes: TableSizes, seeds: int) -> MeasuredRow:
    return MeasuredRow(row, trials.measure(trial_of(row, sizes), seeds))


def _measured_closely(trials: Trials, row: PaperRow, sizes: TableSizes, base: MeasuredRow) -> MeasuredRow:
    """Measure a row with one seed, and with more if that is close to the base model."""
    found = _measure(trials, row, sizes, 1)
    close = abs(math.exp(found.found.loss - base.found.loss) - 1) < sizes.close
    return _measure(trials, row, sizes, sizes.seeds) if close and sizes.seeds > 1 else found


def direction(difference: float, half_width: float = 0.0) -> Direction:
    """Return what a difference of loss means, if it is larger than the noise."""
    return "same" if abs(difference) <= max(half_width, EQUAL) else "better" if difference < 0 else "worse"


def verdict(difference: float, half_width: float, published: float) -> Verdict:
    """Compare a row's difference from the base model with the paper's; all are of log-perplexity."""
    ours, theirs = direction(difference, half_width), direction(published)
    if ours == "same" and (theirs != "same" or half_width > RESOLUTION):
        return "not distinguishable"
    if ours == theirs:
        return "as in the paper"
    return "differs" if theirs == "same" else "opposite"


def finding(measured: Sequence[MeasuredRow], setting: Mapping[str, Any]) -> Finding:
    """Make the table, the figure and the checks."""
    base = measured[0]
    noise = SeedNoise.of([each.found.losses for each in measured])
    bleu_noise = SeedNoise.of([each.found.scores for each in measured])
    taus = {
        "perplexity": tau_interval(
            [each.found.losses for each in measured], [each.row.perplexity for each in measured], noise
        ),
        "BLEU": tau_interval(
            [each.found.scores for each in measured], [each.row.bleu for each in measured], bleu_noise
        ),
    }
    verdicts = {each.row.name: _verdict(each, base, noise) for each in measured[1:]}
    rows = tuple(
        (
            each.row.group,
            each.row.change,
            math.exp(each.found.loss),
            each.found.score.score,
            each.found.score.low,
            each.found.score.high,
            each.found.results[0].parameters,
            len(each.found.results),
            each.row.perplexity,
            each.row.bleu,
            verdicts.get(each.row.name, ""),
        )
        for each in measured
    )
    return Finding(
        title="Table 3: variations of the Transformer",
        claim="the paper's variations rank the same in small models: perplexity and BLEU have the order of Table 3",
        setting={**setting, "deviation of log-perplexity between seeds": noise.deviation},
        columns=COLUMNS,
        rows=rows,
        charts=_charts(measured, noise),
        checks=(*_order_checks(taus), *_group_checks(verdicts)),
    )


def _verdict(each: MeasuredRow, base: MeasuredRow, noise: SeedNoise) -> Verdict:
    half_width = noise.half_width(len(each.found.results), len(base.found.results))
    return verdict(each.found.loss - base.found.loss, half_width, math.log(each.row.perplexity / base.row.perplexity))


def _order_checks(taus: Mapping[str, Interval]) -> list[ClaimCheck]:
    return [
        ClaimCheck(
            f"by {name}, Kendall's τ with the paper's order is {tau.score:.2f} "
            f"(95 % interval {tau.low:.2f} to {tau.high:.2f}), above 0",
            tau.low > 0,
        )
        for name, tau in taus.items()
    ]


COLUMNS = (
    *("row", "in the paper", "PPL", "BLEU", "low", "high", "parameters", "seeds", "PPL (paper)", "BLEU (paper)"),
    "verdict",
)

GROUPS = {
    "A": "one head, and too many heads, are worse",
    "B": "smaller keys are worse",
    "C": "larger models are better",
    "D": "dropout helps; less label smoothing has a better perplexity",
    "E": "learned positions are as good as sinusoids",
}


def _group_checks(verdicts: Mapping[str, Verdict]) -> list[ClaimCheck]:
    checks = []
    for group, statement in GROUPS.items():
        own = {name: found for name, found in verdicts.items() if name.split()[0] == group}
        told = ", ".join(f"{name.removeprefix(group).strip()} {found}" for name, found in own.items())
        agree = sum(found == "as in the paper" for found in own.values())
        contradicted = any(found in ("opposite", "differs") for found in own.values())
        checks.append(ClaimCheck(f"{group}: {statement} ({told})", 2 * agree >= len(own) and not contradicted))
    return checks


def _charts(measured: Sequence[MeasuredRow], noise: SeedNoise) -> tuple[Chart, ...]:
    groups = list(dict.fromkeys(each.row.group for each in measured))
    perplexities, bleus = [], []
    for group in groups:
        own = [each for each in measured if each.row.group == group]
        names = tuple(each.row.change or "base" for each in own)
        spread = [noise.deviation * 1.96 / math.sqrt(len(each.found.results)) for each in own]
        perplexities.append(
            Series(
                group,
                tuple(each.row.perplexity for each in own),
                tuple(math.exp(each.found.loss) for each in own),
                tuple(math.exp(each.found.loss - width) for each, width in zip(own, spread, strict=True)),
                tuple(math.exp(each.found.loss + width) for each, width in zip(own, spread, strict=True)),
                names,
                joined=False,
            )
        )
        bleus.append(
            Series(
                group,
                tuple(each.row.bleu for each in own),
                tuple(each.found.score.score for each in own),
                tuple(each.found.score.low for each in own),
                tuple(each.found.score.high for each in own),
                names,
                joined=False,
            )
        )
    return (
        Chart("Perplexity, with the noise of seeds", "paper", "here", tuple(perplexities)),
        Chart("BLEU, with 95 % intervals", "paper", "here", tuple(bleus)),
    )
