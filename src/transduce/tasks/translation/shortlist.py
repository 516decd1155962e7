"""Make the shortlist of a run from its training pairs or other files, and measure its coverage."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transduce.data.lexicon import Lexicon, PairSample, learn_lexicon
from transduce.data.prepared import Prepared
from transduce.data.ragged import Ragged, RaggedWriter
from transduce.data.settings import PlainTextConfig
from transduce.data.store import PairStore
from transduce.errors import DataError, MissingInput
from transduce.model_folder import load_model
from transduce.storage.filesystem import temporary_storage_errors
from transduce.storage.layout import DATA, SHORTLIST
from transduce.tasks.catalog import load_prepared
from transduce.text.corpus import CorpusFiles, Pair, read_pairs
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer import AnyTokenizer, is_joint

PER_TOKEN = 100
FREQUENT = 100
MOST_MEASURED = 10_000
"""Pairs that coverage is measured on; of more, this many evenly spread."""

HELD_OUT = 100
"""One pair in this many is held out to measure on where there is no validation set."""
READ_TOGETHER = 4096


class Rows(NamedTuple):
    """Pairs of token rows."""

    sources: Ragged
    targets: Ragged


def tokenise(
    pairs: Iterator[Pair], source: AnyTokenizer, target: AnyTokenizer, folder: Path, hold_out: bool
) -> tuple[Rows, Rows]:
    """Write the tokens of pairs into a folder, to be read several times; some are held out, or none."""
    names = [(split, side) for split in ("used", "held") for side in ("source", "target")]
    with ExitStack() as stack:
        writers = {name: stack.enter_context(RaggedWriter(folder, ".".join(name), np.uint32)) for name in names}
        while window := list(islice(pairs, READ_TOGETHER)):
            encoded = {
                "source": source.encode_batch([pair.source for pair in window]),
                "target": target.encode_batch([pair.target for pair in window]),
            }
            for split, side in names:
                rows = zip(window, encoded[side], strict=True)
                held = split == "held"
                writers[split, side].append(
                    [row for pair, row in rows if (hold_out and pair.line % HELD_OUT == 0) == held]
                )
    opened = [Ragged.open(folder, ".".join(name), "<u4") for name in names]
    return Rows(*opened[:2]), Rows(*opened[2:])


def build_shortlist(
    lexicon: Lexicon, source: AnyTokenizer, target: AnyTokenizer, per_token: int = PER_TOKEN, frequent: int = FREQUENT
) -> Shortlist:
    """Take the most probable translations of each source token, and the most frequent target tokens for all.

    With one tokenizer for both sides a token is its own candidate too: names and numbers are often copied, those that
    the corpus lacks as well. Special tokens always are: the end must be possible, and every softmax is over them.
    """
    order = np.lexsort((lexicon.targets, -lexicon.counts, lexicon.sources))
    sources, targets = lexicon.sources[order], lexicon.targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    sources, targets = sources[rank < per_token], targets[rank < per_token]
    if is_joint(source, target):
        own = np.arange(source.size)
        sources, targets = np.concatenate([sources, own]), np.concatenate([targets, own])
    keys = np.unique(sources * target.size + targets)
    offsets = np.searchsorted(keys, np.arange(source.size + 1) * target.size)
    special = [token for token in (*target.specials, target.unknown) if token is not None]
    most = np.argsort(-lexicon.frequency, kind="stable")[:frequent]
    most = most[lexicon.frequency[most] > 0]
    return Shortlist(keys % target.size, offsets, np.union1d(most, np.array(special, dtype=np.int64)))


@dataclass(frozen=True)
class ShortlistCoverage:
    """How much of the references a shortlist covers."""

    pairs: int
    tokens: int
    covered_tokens: int
    covered_pairs: int
    """Pairs whose whole reference is covered."""
    candidates: int
    """Sum of the lists' sizes."""

    @property
    def mean_candidates(self) -> float:
        return self.candidates / max(1, self.pairs)

    @property
    def token_share(self) -> float:
        return self.covered_tokens / max(1, self.tokens)

    @property
    def pair_share(self) -> float:
        return self.covered_pairs / max(1, self.pairs)


def measure_coverage(
    shortlist: Shortlist, sources: Ragged, targets: Ragged, most: int = MOST_MEASURED
) -> ShortlistCoverage:
    """Count the reference tokens that are among the candidates of their sources."""
    rows = PairSample(min(most, len(sources)), len(sources)).rows(0, most)
    tokens = covered_tokens = covered_pairs = candidates = 0
    for row in rows.tolist():
        allowed = shortlist.of(sources[row])
        covered = np.isin(targets[row], allowed)
        tokens += len(covered)
        covered_tokens += int(covered.sum())
        covered_pairs += bool(covered.all())
        candidates += len(allowed)
    return ShortlistCoverage(len(rows), tokens, covered_tokens, covered_pairs, candidates)


@dataclass(frozen=True)
class Listing:
    """A new shortlist and its statistics."""

    path: Path
    shortlist: Shortlist
    source_size: int
    target_size: int
    sample: PairSample
    coverage: ShortlistCoverage | None
    """None if there is nothing to measure it on."""

    def lines(self) -> Iterator[str]:
        """Return the lines to print."""
        sample, always = self.sample, len(self.shortlist.always)
        part = "" if sample.taken == sample.all else f" of {sample.all:,}, evenly spread"
        yield f"counted      {sample.taken:,} pairs{part}"
        if sample.too_long:
            yield f"left out     {sample.too_long:,} pairs that are too long"
        if sample.empty:
            yield f"empty        {sample.empty:,} pairs have nothing on one side"
        yield f"candidates   {len(self.shortlist.tokens):,} for {self.source_size:,} source tokens, {always:,} for all"
        if self.coverage is None:
            yield "covered      not measured: there is no validation set"
            return
        mean, size = self.coverage.mean_candidates, self.target_size
        yield f"a sentence   {mean:,.0f} on average, {100 * mean / size:.1f} % of {size:,} tokens"
        yield (
            f"covered      {100 * self.coverage.token_share:.2f} % of the reference tokens, "
            f"{100 * self.coverage.pair_share:.1f} % of whole references ({self.coverage.pairs:,} pairs)"
        )


def make_shortlist(
    run: Path | str,
    output: Path | str | None = None,
    per_token: int = PER_TOKEN,
    frequent: int = FREQUENT,
    corpus: CorpusFiles | None = None,
    progress: Callable[[str, int], None] = lambda stage, count: None,
) -> Listing:
    """Count translations over a run's training data, or another corpus, and write the shortlist.

    It is measured on the run's validation set. A model folder has none; then a part of the other corpus is held out.
    """
    run = Path(run)
    contents = load_model(run)
    sizes = contents.transducer.sizes
    tokenizers = contents.source_tokenizer, contents.target_tokenizer
    prepared = _prepared(run, tokenizers)
    with _pairs(run, prepared, corpus, tokenizers) as (used, held):
        sample = PairSample.of(*used)
        if sample.empty + sample.too_long >= sample.all:
            raise DataError(
                f"{run if corpus is None else corpus.name}: none of the {sample.all:,} pairs can be aligned: "
                f"{sample.empty:,} have an empty side, {sample.too_long:,} are too long; give other pairs with "
                "--source and --target"
            )
        lexicon = learn_lexicon(*used, *sizes, sample=sample, progress=progress)
        shortlist = build_shortlist(lexicon, *tokenizers, per_token, frequent)
        coverage = measure_coverage(shortlist, *held) if held is not None and len(held.sources) else None
    path = run / SHORTLIST if output is None else Path(output)
    shortlist.save(path, *tokenizers)
    return Listing(path, shortlist, lexicon.source_size, lexicon.target_size, lexicon.sample, coverage)


def _prepared(run: Path, tokenizers: tuple[AnyTokenizer, AnyTokenizer]) -> Prepared | None:
    """Return a run's prepared corpus; a linked folder may have been prepared again since, with other tokens."""
    if not (run / DATA).exists():
        return None
    found = load_prepared(run / DATA)
    theirs = found.source_tokenizer, found.target_tokenizer
    if [one.to_json() for one in tokenizers] != [one.to_json() for one in theirs]:
        raise DataError(
            f"{run / DATA}: was prepared with other tokenizers than the model's; give the model's own folder, "
            "with --source and --target"
        )
    if isinstance(found.data, PlainTextConfig):
        raise DataError(f"{run / DATA}: is plain text without pairs to count; give some with --source and --target")
    return found


@contextlib.contextmanager
def _pairs(
    run: Path, prepared: Prepared | None, corpus: CorpusFiles | None, tokenizers: tuple[AnyTokenizer, AnyTokenizer]
) -> Iterator[tuple[Rows, Rows | None]]:
    """Yield the pairs to count, and those to measure on."""
    validation = None if prepared is None else prepared.validation
    held = Rows(*validation.pairs) if isinstance(validation, PairStore) else None
    if corpus is not None:
        with contextlib.ExitStack() as stack:
            with temporary_storage_errors():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                used, kept = tokenise(read_pairs(corpus), *tokenizers, folder, hold_out=held is None)
            yield used, held or kept
    elif prepared is not None:
        yield Rows(*prepared.train_as(PairStore).pairs), held
    else:
        raise MissingInput(f"{run}: has no training data ({DATA}/); give pairs to count with --source and --target")
