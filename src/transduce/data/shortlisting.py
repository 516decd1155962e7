"""A shortlist out of a corpus's lexicon, how much of other pairs it covers, and corpora that are not prepared yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transduce.data.lexicon import Lexicon, Sample
from transduce.data.ragged import Ragged, RaggedWriter
from transduce.text.any_tokenizer import AnyTokenizer, is_joint
from transduce.text.corpus import Pair
from transduce.text.shortlist import Shortlist

PER_TOKEN = 100
FREQUENT = 100
MOST_MEASURED = 10_000
"""Pairs that coverage is measured on; of more, so many evenly spread."""

HELD_OUT = 100
"""One pair in so many is kept to measure on where there is no validation set."""
READ_TOGETHER = 4096


class Rows(NamedTuple):
    """Pairs of token rows."""

    sources: Ragged
    targets: Ragged


def tokenise(
    pairs: Iterator[Pair], source: AnyTokenizer, target: AnyTokenizer, folder: Path, hold_out: bool
) -> tuple[Rows, Rows]:
    """Write the tokens of pairs into a folder, so that they can be read again and again; some are held out, or none."""
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
    """Take the likeliest translations of each source token, and the most frequent target tokens for all.

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
class Coverage:
    """How much of the references of some pairs a shortlist allows."""

    pairs: int
    tokens: int
    covered_tokens: int
    covered_pairs: int
    """Pairs whose whole reference could be written."""
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


def measure_coverage(shortlist: Shortlist, sources: Ragged, targets: Ragged, most: int = MOST_MEASURED) -> Coverage:
    """Look whether the references of pairs could be written from the candidates of their sources."""
    rows = Sample(min(most, len(sources)), len(sources)).rows(0, most)
    tokens = covered_tokens = covered_pairs = candidates = 0
    for row in rows.tolist():
        allowed = shortlist.of(sources[row])
        covered = np.isin(targets[row], allowed)
        tokens += len(covered)
        covered_tokens += int(covered.sum())
        covered_pairs += bool(covered.all())
        candidates += len(allowed)
    return Coverage(len(rows), tokens, covered_tokens, covered_pairs, candidates)
