"""Table 4 of "Attention Is All You Need": parsing as translation from words into brackets.

The paper trains a Transformer of four layers on the Wall Street Journal's 40,000 trees, which are licensed, and finds
that it generalises where recurrent sequence-to-sequence models fall short: on small data. Here a Transformer and a
recurrent network with attention learn brackets from few and from more sentences of a treebank: one that is drawn from
a grammar (constituents), or one in CoNLL-U such as UD English-LinES (`--data`; dependencies, written as brackets). The
score is labelled bracketing F1 on test sentences.

Both models have as many updates on the same batches. Each has the learning rate, of those that are tried, with the
lowest validation perplexity. Where the models are close, more seeds are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.errors import DataError
from transduce.experiments.finding import Chart, ClaimCheck, Conditions, Finding, Series
from transduce.experiments.study_corpus import StudyCorpus
from transduce.experiments.treebank import BracketingF1, convert_treebank, generate_treebank, is_balanced
from transduce.experiments.trials import Measured, Trial, Trials

TRANSFORMER, RECURRENT = "Transformer", "RNN with attention"


@dataclass(frozen=True)
class ParsingSizes:
    """Sizes of the study."""

    width: int = 64
    num_layers: int = 3
    batch_tokens: int = 512
    updates: int = 2000
    vocabulary: int = 1000
    sentences: tuple[int, ...] = (500, 5000)
    """Training sentences; of a given treebank, the first ones."""
    held_out: int = 500
    seeds: int = 3
    close: float = 5.0
    """Difference in F1 below which more seeds are trained."""
    rates: tuple[float, ...] = (0.0015, 0.003, 0.006)
    """Learning rates that are tried for each model with the first seed."""

    def models(self) -> dict[str, Table]:
        """The two models; they have a similar number of parameters."""
        transformer = {
            "name": "transformer",
            "norm": "pre",
            "model_dim": self.width,
            "ffn_dim": 4 * self.width,
            "num_heads": 4,
            "num_layers": self.num_layers,
            "tied_embeddings": "target",
            "dropout": 0.1,
        }
        recurrent = {
            "preset": "bahdanau",
            "embedding_dim": self.width,
            "hidden_dim": 3 * self.width // 2,
            "dropout": 0.1,
        }
        return {TRANSFORMER: transformer, RECURRENT: recurrent}

    def trial(self, name: str, rate: float) -> Trial:
        """The trial of one model with one learning rate."""
        training = {
            "batch_tokens": self.batch_tokens,
            "micro_batch_tokens": self.batch_tokens,
            "updates": self.updates,
            "schedule": "linear",
            "learning_rate": rate,
            "warmup": self.updates // 8,
            "max_grad_norm": 1.0,
            "validate_every": -(-self.updates // 5),
            "decode_examples": 0,
            "keep_last": 1,
        }
        return Trial(f"{name.lower().replace(' ', '-')}-{rate}", self.models()[name], training)


FOR_GIVEN_DATA = ParsingSizes(updates=1000, sentences=(500, 3000))
QUICK = ParsingSizes(32, 2, 256, 200, 500, (200, 1000), 50, seeds=1, rates=(0.006,))


@dataclass(frozen=True)
class ParsedCell:
    """One model trained on a number of sentences."""

    model: str
    sentences: int
    rate: float
    """The learning rate that was chosen on validation sentences."""
    found: Measured
    balanced: float
    """Share of the outputs of the first seed whose brackets are those of a tree."""


def run(conditions: Conditions, sizes: ParsingSizes | None = None) -> Finding:
    """Measure both models for each number of sentences."""
    given = conditions.data is not None
    sizes = sizes or (QUICK if conditions.quick else FOR_GIVEN_DATA if given else ParsingSizes())
    cells, left_out, name = list[ParsedCell](), 0, ""
    for count in sizes.sentences:
        corpus, left_out = _treebank(conditions, sizes, count)
        name = corpus.name
        cells += _compared(_trials(corpus, sizes, conditions), sizes)
    setting: dict[str, Any] = {"treebank": name, "test sentences": len(cells[0].found.results[0].translations)}
    setting |= {"updates": sizes.updates, "batch tokens": sizes.batch_tokens, "width": sizes.width}
    setting["rates tried"] = " ".join(map(str, sizes.rates))
    if given:
        setting["sentences left out (not projective or too long)"] = left_out
    return finding(cells, setting)


def _treebank(conditions: Conditions, sizes: ParsingSizes, count: int) -> tuple[StudyCorpus, int]:
    if conditions.data is None:
        return generate_treebank(conditions.folder, count, sizes.held_out), 0
    corpus, left_out = convert_treebank(Path(conditions.data), conditions.folder, count)
    if not corpus.test_set("test").sources:
        raise DataError(f"{conditions.data}: has no test sentence with a projective tree")
    return corpus, left_out


def _trials(corpus: StudyCorpus, sizes: ParsingSizes, conditions: Conditions) -> Trials:
    tokenizer = {"source_kind": "bpe", "target_kind": "word", "joint": False, "vocab_size": sizes.vocabulary}
    return Trials(corpus, {**tokenizer, "min_frequency": 1}, conditions, metric=BracketingF1())


def _compared(trials: Trials, sizes: ParsingSizes) -> list[ParsedCell]:
    rates = {name: _best_rate(trials, sizes, name) for name in sizes.models()}
    found = {name: trials.measure(sizes.trial(name, rate)) for name, rate in rates.items()}
    scores = [each.score.score for each in found.values()]
    if sizes.seeds > 1 and max(scores) - min(scores) < sizes.close:
        found = {name: trials.measure(sizes.trial(name, rate), sizes.seeds) for name, rate in rates.items()}
    cells = []
    for name, each in found.items():
        outputs = each.results[0].translations
        balanced = sum(map(is_balanced, outputs)) / len(outputs)
        cells.append(ParsedCell(name, len(trials.prepared.train), rates[name], each, balanced))
    return cells


def _best_rate(trials: Trials, sizes: ParsingSizes, name: str) -> float:
    """Return the learning rate with the lowest validation perplexity; with one rate nothing is trained for it."""
    if len(sizes.rates) == 1:
        return sizes.rates[0]
    return min(sizes.rates, key=lambda rate: trials.validation_perplexity(sizes.trial(name, rate)))


def finding(cells: Sequence[ParsedCell], setting: Mapping[str, Any]) -> Finding:
    """Make the table, the figure and the checks."""
    rows = tuple(
        (
            cell.model,
            cell.sentences,
            cell.rate,
            cell.found.results[0].parameters,
            cell.found.results[0].perplexity,
            cell.found.score.score,
            cell.found.score.low,
            cell.found.score.high,
            100 * cell.balanced,
            len(cell.found.results),
            "91.3 (WSJ only)" if cell.model == TRANSFORMER else "–",
        )
        for cell in cells
    )
    by_model = {name: [cell for cell in cells if cell.model == name] for name in (TRANSFORMER, RECURRENT)}
    chart = Chart(
        "Labelled bracketing F1, with 95 % intervals",
        "training sentences",
        "F1",
        tuple(
            Series(
                name,
                tuple(cell.sentences for cell in own),
                tuple(cell.found.score.score for cell in own),
                tuple(cell.found.score.low for cell in own),
                tuple(cell.found.score.high for cell in own),
            )
            for name, own in by_model.items()
        ),
        log_x=True,
    )
    return Finding(
        title="Table 4: parsing as translation into brackets",
        claim="the Transformer learns to parse from small data, where a recurrent network with attention falls short",
        setting=setting,
        columns=(
            "model",
            "sentences",
            "rate",
            "parameters",
            "PPL",
            "F1",
            "low",
            "high",
            "% trees",
            "seeds",
            "F1 (paper)",
        ),
        rows=rows,
        charts=(chart,),
        checks=tuple(map(_check, *by_model.values())),
    )


def _check(transformer: ParsedCell, recurrent: ParsedCell) -> ClaimCheck:
    """Check that every seed of the Transformer is better than every one of the RNN, and the intervals are apart."""
    ours, theirs = transformer.found, recurrent.found
    apart = ours.score.low > theirs.score.high and min(ours.scores) > max(theirs.scores)
    return ClaimCheck(
        f"with {transformer.sentences:,} sentences the Transformer is better: F1 {ours.score.score:.1f} "
        f"({ours.score.low:.1f} to {ours.score.high:.1f}) against {theirs.score.score:.1f} "
        f"({theirs.score.low:.1f} to {theirs.score.high:.1f})",
        apart,
    )
