"""Scoring: log-probabilities of given targets, and of texts of any length by a sliding window; reranking.

Windows of as many tokens as the model reads begin every `stride` tokens. Each token is scored once, by the first window
that has it: the smaller the stride, the more context it has, and the longer it takes. A stride of the whole window is
the fastest and gives the least context; with a stride of one, every token has as much context as the model can read.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from transduce.config import counted
from transduce.errors import DataError, SettingsError
from transduce.inference.padding import in_batches, source_batch, target_batch
from transduce.inference.search.penalty import normalize
from transduce.inference.segment import Translation
from transduce.models.interface import AnyTransducer
from transduce.text.corpus import DocumentPart, encode_pieces, read_lines
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import Specials

if TYPE_CHECKING:
    from transduce.inference.translator import Translator

# Scoring given targets.


@dataclass(frozen=True)
class ScoredTarget:
    """Log-probabilities of the tokens of a target, the end token last."""

    token_scores: list[float]
    hits: list[bool]
    """Whether each token is the one the model finds likeliest there."""

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole target."""
        return sum(self.token_scores)


def score_pairs(
    model: AnyTransducer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source: Specials,
    target: Specials,
) -> list[ScoredTarget | None]:
    """Score any number of pairs, similar lengths together; None for one that is too long to be read at once."""
    return in_batches(score_targets, model, sources, targets, source, target)


def score_targets(
    model: AnyTransducer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    source: Specials,
    target: Specials,
) -> list[ScoredTarget]:
    """Score each target (tokens without start and end) given its source, in one forward pass."""
    device = model.output.weight.device
    with torch.inference_mode():
        memory = model.encode(*source_batch(sources, source, device))
        input_BT, output_BT, real_BT = target_batch(targets, target, device)
        score_BTV = model.logits(model(input_BT, memory)).float().log_softmax(dim=-1)
        score_BT = score_BTV.gather(2, output_BT[:, :, None])[:, :, 0]
        hit_BT = score_BTV.argmax(dim=-1) == output_BT
    rows = zip(score_BT.cpu(), hit_BT.cpu(), real_BT.cpu(), strict=True)
    return [ScoredTarget(scores[real].tolist(), hits[real].tolist()) for scores, hits, real in rows]


BATCH_TOKENS = 4096
"""Tokens of the windows that are read in one batch."""


@dataclass(frozen=True)
class ScoringWindow:
    """A window of a stream of tokens."""

    tokens: list[int]
    """The tokens to read, and one more."""
    new: int
    """How many of them, at the end, are scored in this window."""


def scoring_windows(tokens: Iterable[int], window: int, stride: int) -> Iterator[ScoringWindow]:
    """Divide a stream into windows; its first token is only read. One window is held in memory."""
    if not 1 <= stride <= window:
        raise SettingsError(f"invalid stride {stride} for a window of {window} tokens; choose 1 to {window}")
    stream = iter(tokens)
    held = list(itertools.islice(stream, window + 1))
    new = len(held) - 1
    while new > 0:
        yield ScoringWindow(held, new)
        more = list(itertools.islice(stream, stride))
        held, new = [*held, *more][-(window + 1) :], len(more)


def sliding_scores(model: AnyTransducer, tokens: Iterable[int], window: int, stride: int) -> Iterator[list[float]]:
    """Yield the log-probabilities of a stream's tokens, all but the first, some at a time and in their order."""
    found = scoring_windows(tokens, window, stride)
    together = max(1, BATCH_TOKENS // window)
    while batch := list(itertools.islice(found, together)):
        for alike in (list(group) for _, group in itertools.groupby(batch, key=lambda one: len(one.tokens))):
            yield _score(model, alike)


def _score(model: AnyTransducer, batch: list[ScoringWindow]) -> list[float]:
    """Score windows of one length."""
    tokens_BT = torch.tensor([one.tokens for one in batch], device=model.output.weight.device)
    with torch.inference_mode():
        memory = model.encode(tokens_BT[:, :0], tokens_BT[:, :0].bool())
        hidden_BTD = model(tokens_BT[:, :-1], memory)
        num_scored = max(one.new for one in batch)  # what came before is read, but needs no score
        score_BAV = model.logits(hidden_BTD[:, -num_scored:]).float().log_softmax(dim=-1)
        score_BA = score_BAV.gather(2, tokens_BT[:, -num_scored:, None])[:, :, 0]
    return [score for one, row in zip(batch, score_BA.tolist(), strict=True) for score in row[num_scored - one.new :]]


# Scoring texts.

DEFAULT_WINDOW = 256
"""Window of a model without a limit of its own, in tokens."""


@dataclass(frozen=True)
class TextScore:
    """The score of a text."""

    log_probability: float
    tokens: int
    """Scored tokens: all of the text, and the end of each document."""
    words: int
    bytes: int


@dataclass
class _Counted:
    """Documents as one stream of tokens, and how much text went through it."""

    tokenizer: AnyTokenizer
    scored: int = 0
    words: int = 0
    bytes: int = 0

    def tokens(self, pieces: Iterable[DocumentPart]) -> Iterator[int]:
        """An end token before every document and after the last, as in training."""
        for piece in pieces:
            self.words += len(piece.text.split())
            self.bytes += len(piece.text.encode())
            yield from [self.tokenizer.end] if piece.begins else []
            yield from encode_pieces(self.tokenizer, [piece])[0]
        if self.bytes:
            yield self.tokenizer.end


def score_text(
    model: AnyTransducer, tokenizer: AnyTokenizer, pieces: Iterable[DocumentPart], window: int, stride: int
) -> TextScore:
    """Score every token of some documents once, with a window that moves by `stride` tokens."""
    counted, found = _Counted(tokenizer), 0.0
    for scores in sliding_scores(model, counted.tokens(pieces), window, stride):
        found += math.fsum(scores)
        counted.scored += len(scores)
    return TextScore(found, counted.scored, counted.words, counted.bytes)


# Reranking given translations: by the score of another model, or by their consensus (minimum Bayes risk).


@dataclass(frozen=True)
class NBestList:
    """Given translations of one line."""

    line: int
    """From 0."""
    texts: list[str]


def read_nbest(lines: Iterable[str], where: str) -> Iterator[NBestList]:
    """Read n-best lists in Moses's format, `line ||| text ||| …`, grouped by line."""

    def parse() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(lines, start=1):
            first, *fields = [field.strip() for field in line.split("|||")]
            place = counted(first)
            if not fields or place is None:
                raise DataError(f"{where}:{number}: is not of the form `line ||| text ||| …`")
            yield place, fields[0]

    before = -1
    for line, several in groupby(parse(), key=lambda found: found[0]):
        if line <= before:
            raise DataError(
                f"{where}: the translations of line {line} are not next to each other, in the order of the lines"
            )
        before = line
        yield NBestList(line, [text for _, text in several])


def rerank(translator: Translator, source: str, candidates: Sequence[str]) -> list[Translation]:
    """Score each candidate by the model and its length penalty, and sort them, best first.

    One that is too long to be read at once comes last, with a score of minus infinity.
    """
    options = translator.defaults
    found = []
    for text, scored in zip(candidates, translator.score([(source, text) for text in candidates]), strict=True):
        score = -float("inf")
        if scored is not None:
            score = normalize(scored.log_probability, len(scored.token_scores), options)
        found.append(Translation(text, score))
    return sorted(found, key=lambda one: -one.score)


def rerank_lists(
    translator: Translator, source: str, nbest: str, n_best: int = 1
) -> Iterator[tuple[int, list[Translation]]]:
    """Rerank the n-best lists of the lines of a file; yield each line's number, from 0, and its best candidates."""
    given = iter(read_nbest(read_lines(nbest), nbest))
    for number, text in enumerate(read_lines(source)):
        candidates = next(given, None)
        if candidates is None or candidates.line != number:
            raise DataError(
                f"{nbest}: has no candidate for line {number} of {source}, counted from 0; give each line at least one"
            )
        yield number, rerank(translator, text, candidates.texts)[:n_best]
    left = next(given, None)
    if left is not None:
        raise DataError(f"{nbest}: has candidates for line {left.line}, which {source} does not have")


def consensus(candidates: Sequence[Translation]) -> list[Translation]:
    """Sort candidates by how much they agree with all of them, best first: minimum Bayes risk with chrF.

    The score is the mean chrF against the candidates, itself among them (Eikema and Aziz 2020): a translation
    that most samples resemble wins over an outlier.
    """
    from transduce.evaluation.metrics import chrf_metric  # sacreBLEU takes long to import, and only this needs it

    metric = chrf_metric()
    weight = Counter(candidate.text for candidate in candidates)
    first = {candidate.text: candidate for candidate in reversed(candidates)}
    found = []
    others = [[other] for other in weight]
    for text in weight:
        shared = metric.statistics([text] * len(others), others)
        gain = sum(count * metric.value(one) for one, count in zip(shared, weight.values(), strict=True))
        found.append(replace(first[text], score=gain / len(candidates)))
    return sorted(found, key=lambda one: -one.score)
