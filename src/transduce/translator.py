"""Text in, text out: a model folder with its tokenizers and its search, as one callable.

translator = transduce.load("runs/demo")
translator("some text")
translator.translate(["a line", "another"], beam=5, nbest=3)
translator.attention("some text")            # shows itself in a notebook
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, overload

from transduce.checkpoint import ModelFolder, load_model
from transduce.decoding.ensemble import Ensemble
from transduce.decoding.options import SAMPLING, Hypothesis, Request, SearchOptions
from transduce.decoding.scoring import ScoredTarget, score_pairs
from transduce.errors import ModelFolderError, SettingsError
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.next_token import next_tokens
from transduce.inspection.record import attention_of
from transduce.interop.ctranslate2 import Quantization
from transduce.searcher import Choice, Searcher
from transduce.text.constraint import Constraints
from transduce.text.cutting import cut_tokens
from transduce.text.sentence import Piece, joint, split_sentences

T = TypeVar("T")

LONGEST_PART = 256
"""Source tokens that are read at once where the model itself has no limit; a longer line is translated in parts."""


@dataclass(frozen=True)
class Translation:
    """One answer to one line."""

    text: str
    score: float
    """Log-probability divided by the length penalty; sums over the parts of a line that was split."""
    ended: bool = True
    """False where the maximum length cut it off."""


@dataclass
class Counts:
    """What happened to the lines so far."""

    lines: int = 0
    several: int = 0
    """Lines of several sentences, which were translated one by one."""
    empty: int = 0
    """Lines without any text; they stay empty."""
    split: int = 0
    """Lines longer than the model reads at once, translated in parts."""
    unknown: int = 0
    """Source tokens that the vocabulary lacks."""
    cut: int = 0
    """Translations that reached the maximum length before the model ended them."""
    forbidden: int = 0
    """Translations that have a forbidden word all the same, spelled with other tokens."""

    def plus(self, others: Counts) -> Counts:
        """Return these and others together."""
        return Counts(**{name: value + getattr(others, name) for name, value in vars(self).items()})


def load(folder: str | Path, *others: str | Path) -> Translator:
    """Load a run or model folder; or several, which then answer together, by the mean of their probabilities."""
    contents, *more = [load_model(Path(name)) for name in (folder, *others)]
    for name, other in zip(others, more, strict=True):
        for side in ("source_tokenizer", "target_tokenizer"):
            if getattr(contents, side).to_json() != getattr(other, side).to_json():
                raise SettingsError(
                    f"{name}: its {side.replace('_', ' ')} is not the one of {folder}; the models of an ensemble must "
                    "be trained on one prepared corpus (`transduce prepare`, then `train --prepared`)"
                )
    if more:
        contents = replace(contents, model=Ensemble([contents.model, *(other.model for other in more)]))
    return Translator(contents)


def one_line(text: str) -> str:
    """Return an answer as one line of a file: a model of bytes may say a line break, which becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


class Translator:
    """Translates with one model. What is asked per call goes over the defaults that the model was saved with."""

    def __init__(self, contents: ModelFolder) -> None:
        self.model, self.notes = contents.model, contents.notes
        self.source, self.target = contents.source_tokenizer, contents.target_tokenizer
        self.engine = Searcher(contents)
        try:
            self.defaults = SearchOptions.from_table(contents.notes.get("search", {}), "the model folder's search")
        except SettingsError as error:
            raise ModelFolderError(f"{error}; copy the folder again") from None
        self.counts = Counts()

    def __call__(self, text: str) -> str:
        """Translate one text."""
        return self.translate([text])[0]

    @overload
    def translate(
        self,
        lines: Iterable[str],
        *,
        nbest: None = None,
        prefixes: Iterable[str] = (),
        forbid: Sequence[str] = (),
        split: bool = True,
        **options: Any,
    ) -> list[str]: ...
    @overload
    def translate(
        self,
        lines: Iterable[str],
        *,
        nbest: int,
        prefixes: Iterable[str] = (),
        forbid: Sequence[str] = (),
        split: bool = True,
        **options: Any,
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        lines: Iterable[str],
        *,
        nbest: int | None = None,
        prefixes: Iterable[str] = (),
        forbid: Sequence[str] = (),
        split: bool = True,
        **options: Any,
    ) -> list[str] | list[list[Translation]]:
        """Translate lines; with `nbest` give that many answers to each, with scores, best first.

        `prefixes` are what the answers begin with, one for each line; words of `forbid` are not written; `split`
        translates a line of several sentences one by one. Further options are those of `SearchOptions`: method,
        beam, length_penalty, alpha, max_length, temperature, …
        """
        if isinstance(lines, str):
            raise SettingsError("translate takes lines; call the translator itself with one text: translator(text)")
        wished, constraints = self.options(nbest=nbest, **options), self.constraints(prefixes, forbid)
        answers = [answer for window in windows(lines) for answer in self.answer(window, wished, constraints, split)]
        constraints.refuse_leftovers()
        return [answer[0].text for answer in answers] if nbest is None else answers

    def options(self, **wishes: Any) -> SearchOptions:
        """Return the model's search options with some of them changed; None leaves one as it is."""
        given = {name: value for name, value in wishes.items() if value is not None}
        saved = self.defaults.model_dump()
        if "method" not in given and given.keys() & set(SAMPLING):
            given["method"] = "sample"
        elif "method" not in given and ("beam" in given or (given.get("nbest", 1) > 1 and saved["method"] == "greedy")):
            given["method"] = "beam"
        method = given.get("method", saved["method"])
        if method != saved["method"]:  # what was saved is for another way to search
            saved = {name: value for name, value in saved.items() if name not in (*SAMPLING, "nbest")}
        if method == "beam" and given.get("nbest", 1) > 1 and "beam" not in given:
            given["beam"] = max(given["nbest"], self.defaults.beam)
        return SearchOptions.from_table({**saved, **given}, "the search")

    def constraints(self, prefixes: Iterable[str] = (), forbid: Sequence[str] = ()) -> Constraints:
        """Return what answers must begin with and must not say, in this model's tokens."""
        return Constraints(self.target, prefixes, forbid)

    def answer(
        self,
        lines: Sequence[str],
        options: SearchOptions,
        constraints: Constraints | None = None,
        split: bool = False,
        choose: Callable[[list[Translation]], list[Translation]] = list,
        counts: Counts | None = None,
    ) -> list[list[Translation]]:
        """Answer a window of lines, each with as many translations as the options ask for.

        `split` translates a line of several sentences one by one, and puts their translations together; `choose` puts
        the answers to a line into another order; `counts` notes what happened instead of the translator's own.
        """
        counts = self.counts if counts is None else counts
        constraints = constraints or self.constraints()
        texts = [self._sentences(line) if split else [Piece(line, "")] for line in lines]
        prefixes = [prefix for several in texts for prefix in (constraints.next_prefix(), *[[]] * (len(several) - 1))]
        sentences = [piece.sentence for several in texts for piece in several]
        found = iter(self._answer(sentences, prefixes, options, constraints, counts))
        answers = [choose(_together([(next(found), piece.space) for piece in several])) for several in texts]
        counts.lines += len(lines)
        counts.several += sum(len(several) > 1 for several in texts)
        counts.empty += sum(not line.strip() for line in lines)
        counts.cut += sum(not answer[0].ended for answer in answers)
        counts.forbidden += sum(constraints.are_broken(answer[0].text) for answer in answers)
        return answers

    def _sentences(self, line: str) -> list[Piece]:
        pieces = split_sentences(line, str(self.notes.get("source_language") or ""))
        return pieces if len(pieces) > 1 else [Piece(line, "")]

    def _answer(
        self,
        texts: Sequence[str],
        prefixes: Sequence[list[int]],
        options: SearchOptions,
        constraints: Constraints,
        counts: Counts,
    ) -> list[list[Translation]]:
        """Answer texts, those that are too long for the model in parts."""
        encoded = self.source.encode_batch(list(texts))
        parts = [
            self._parts(tokens) if text.strip() and tokens else [] for text, tokens in zip(texts, encoded, strict=True)
        ]
        flat = [
            (part, prefix if place == 0 else [])
            for several, prefix in zip(parts, prefixes, strict=True)
            for place, (part, _) in enumerate(several)
            if part
        ]
        requests = [
            Request(number, part, options, prefix, constraints.forbidden) for number, (part, prefix) in enumerate(flat)
        ]
        found = iter(self.engine.translate(requests))
        counts.split += sum(len(several) > 1 for several in parts)
        counts.unknown += sum(self.source.count_unknown(tokens) for tokens in encoded)
        nothing = [Hypothesis([], 0.0, 0.0)] * options.nbest
        return [
            self._join([(next(found) if part else nothing, glue) for part, glue in several], options)
            for several in parts
        ]

    def use(self, engine: Choice, quantization: Quantization = "float32") -> None:
        """Choose what searches: PyTorch, or CTranslate2 for what it does as we do; `auto` takes that where it can.

        What CTranslate2 cannot do is searched by PyTorch all the same, and `engine.fallen_back` says why.
        """
        self.engine.use(engine, quantization)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[ScoredTarget | None]:
        """How likely the model finds given translations of given sources; None for a pair too long to read at once."""
        sources, targets = (
            tokenizer.encode_batch([pair[side] for pair in pairs])
            for side, tokenizer in enumerate((self.source, self.target))
        )
        return score_pairs(self.model, sources, targets, self.source.specials, self.target.specials)

    def attention(self, text: str, top: int = 5, **options: Any) -> AttentionMaps:
        """Translate one text and return where every head looked, with the likeliest tokens of each step.

        Of a text longer than the model reads at once, which is counted as split, only the first part is looked at.
        """
        if isinstance(self.model, Ensemble):
            raise SettingsError("an ensemble looks with several models at once; look inside one of them at a time")
        (first, _), *others = self._parts(self.source.encode(text))
        if others:
            self.counts.split += 1
            text = self.source.decode(first)
        source_tokens = [*first, self.source.end]
        request = Request(0, first, self.options(**options))
        best = self.engine.translate([request])[0][0]
        target_tokens = [self.target.start, *best.tokens, *([self.target.end] if best.ended else [])]
        maps = attention_of(
            self.model,
            source_tokens,
            target_tokens,
            source_pieces=self.source.pieces(source_tokens),
            target_pieces=self.target.pieces(target_tokens),
            source=text,
            translation=self.target.decode(best.tokens),
        )
        return maps.with_steps(next_tokens(self.model, source_tokens, target_tokens, top, self.target.pieces))

    def _parts(self, tokens: list[int]) -> list[tuple[list[int], str]]:
        """Cut a source that is too long; each part comes with what stood before it."""
        limit = max(1, min(LONGEST_PART, (self.model.max_source or LONGEST_PART + 1) - 1))
        return cut_tokens(self.source, tokens, limit)

    def _join(self, found: list[tuple[list[Hypothesis], str]], options: SearchOptions) -> list[Translation]:
        """Put the parts of a line together: all the best ones, all the second best, …"""
        if not found:
            return [Translation("", 0.0)]
        count = min(options.nbest, *(len(hypotheses) for hypotheses, _ in found))
        joined = []
        for rank in range(count):
            text, score, ended = "", 0.0, True
            for hypotheses, glue in found:
                text += glue + self.target.decode(hypotheses[rank].tokens)
                score += hypotheses[rank].score
                ended = ended and hypotheses[rank].ended
            joined.append(Translation(text, score, ended))
        return joined


def _together(found: list[tuple[list[Translation], str]]) -> list[Translation]:
    """Put the translations of a line's sentences together, each with the white space behind it."""
    (joined, space), *others = found
    for answers, next_space in others:
        joined = [
            Translation(
                one.text + joint(one.text, space, other.text) + other.text,
                one.score + other.score,
                one.ended and other.ended,
            )
            for one, other in zip(joined, answers, strict=False)
        ]
        space = next_space
    return joined


def windows(items: Iterable[T], size: int = 1024) -> Iterator[list[T]]:
    """Yield what is worked on together: similar lengths are then put next to each other."""
    rest = iter(items)
    while window := list(itertools.islice(rest, size)):
        yield window
