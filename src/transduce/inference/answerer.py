"""Texts in, translations out: a text is cut into what a model reads, asked of an engine, and put together again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from transduce.errors import SettingsError
from transduce.inference.alignment import Links, word_links
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.searcher import Searcher
from transduce.inference.segment import Part, cut_tokens
from transduce.inference.translation import Translation, together
from transduce.text.constraint import Constraints, are_kept, put_back, take_out
from transduce.text.picture import refuse_no_picture
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.tag import Lead

Worded = tuple[list[int], list[int | None]]
"""Tokens, and which word of their text each is of."""

LONGEST_PART = 256
"""Source tokens that are read at once where the model itself has no limit; a longer line is translated in parts."""


@dataclass
class Counts:
    """What happened to the lines so far."""

    lines: int = 0
    several: int = 0
    """Lines of several sentences, which were translated one by one."""
    empty: int = 0
    """Lines without any text; they stay empty."""
    unread: int = 0
    """Texts of which the tokenizer leaves nothing; they stay empty, too."""
    split: int = 0
    """Lines longer than the model reads at once, translated in parts."""
    unknown: int = 0
    """Source tokens that the vocabulary lacks."""
    cut: int = 0
    """Translations that reached the maximum length before the model ended them."""
    forbidden: int = 0
    """Translations that have a forbidden word all the same, spelled with other tokens."""
    missing: int = 0
    """Translations that lack a term that was asked for."""

    def plus(self, others: Counts) -> Counts:
        """Return these and others together."""
        return Counts(**{name: value + getattr(others, name) for name, value in vars(self).items()})


class Answerer:
    """Answers texts with one engine; `limit` is the longest source that its model reads, with the end token.

    `lead` is how many tokens go before every source. Where sources are pictures, `image_size` is how many pixels a
    side has: a picture is never cut, and a text that is none is refused.
    """

    def __init__(
        self,
        source: AnyTokenizer,
        target: AnyTokenizer,
        engine: Searcher,
        limit: int | None,
        lead: int = 0,
        image_size: int | None = None,
    ) -> None:
        self.source, self.target, self.engine = source, target, engine
        self._longest = max(1, min(LONGEST_PART, (limit or LONGEST_PART + 1) - 1) - lead)
        self._side = image_size

    def answer(
        self,
        texts: Sequence[str],
        prefixes: Sequence[list[int]],
        options: SearchOptions,
        constraints: Constraints,
        align: bool,
        counts: Counts,
        leads: Sequence[Lead],
    ) -> list[list[Translation]]:
        """Answer texts; one with an answer that does not copy what it has to is read without that, which is put in."""
        parts = self.parts_of(texts)
        counts.unread += sum(bool(text.strip()) and not several for text, several in zip(texts, parts, strict=True))
        counts.split += sum(len(several) > 1 for several in parts)
        counts.unknown += sum(self.source.count_unknown(part) for several in parts for part, *_ in several)
        answers = self._search(texts, parts, prefixes, options, constraints, align, leads)
        kept = constraints.kept
        if kept is None:
            return answers
        pairs = zip(texts, answers, strict=True)
        whole = [[are_kept(kept, text, one.text) for one in several] for text, several in pairs]
        lost = [place for place, several in enumerate(whole) if not all(several)]
        taken = [take_out(kept, texts[place]) for place in lost]
        left_over = [left for left, _ in taken]
        mine, same = [prefixes[place] for place in lost], [leads[place] for place in lost]
        rest = self.parts_of(left_over)
        again = self._search(left_over, rest, mine, options, constraints, self.engine.attends, same)
        for place, (left, placeholders), several in zip(lost, taken, again, strict=True):
            mended = [
                replace(one, text=put_back(one.text, placeholders, one.links) if left.strip() else texts[place])
                for one in several
            ]
            answers[place] = _instead(answers[place], whole[place], mended)
        return answers

    def _search(
        self,
        texts: Sequence[str],
        parts: Sequence[list[Part]],
        prefixes: Sequence[list[int]],
        options: SearchOptions,
        constraints: Constraints,
        align: bool,
        leads: Sequence[Lead],
    ) -> list[list[Translation]]:
        """Answer texts that were cut into parts, each of which has its text's lead before it."""
        flat = [
            (
                part.after(lead.source),
                [*lead.target, *(prefix if place == 0 else [])],
                text if len(several) == 1 else self.source.decode(part.tokens),
            )
            for text, several, prefix, lead in zip(texts, parts, prefixes, leads, strict=True)
            for place, part in enumerate(several)
            if part.tokens
        ]
        requests = [self.request(tokens, options, constraints, prefix, text) for tokens, prefix, text in flat]
        requests = [replace(request, id=number) for number, request in enumerate(requests)]
        hypotheses = self.engine.translate(requests)
        links = iter(self._links_of(texts, parts, leads, hypotheses)) if align else itertools.repeat(None)
        found = iter(
            [self._translation(text, one, next(links), constraints) for one in several]
            for (_, _, text), several in zip(flat, hypotheses, strict=True)
        )
        nothing = [Translation("", 0.0)] * options.n_best
        each = [[next(found) if part.tokens else nothing for part in several] for several in parts]
        return [self._of_parts(several, answers) for several, answers in zip(parts, each, strict=True)]

    def _of_parts(self, parts: Sequence[Part], found: Sequence[list[Translation]]) -> list[Translation]:
        """Put the translations of a text's parts together."""
        if not parts:
            return [Translation("", 0.0)]
        nothing_before = [""] * len(parts)  # links count the words of the whole source already
        return together(found, nothing_before, lambda number, *_: parts[number].glue)

    def request(
        self, tokens: list[int], options: SearchOptions, constraints: Constraints, prefix: Sequence[int], text: str
    ) -> Request:
        """What is asked of the engine for some tokens of a source, which are those of a text."""
        required = constraints.required(text) if constraints.has_terms else []
        if required and options.method != "beam":
            raise SettingsError(f"terms need a beam search, which the method '{options.method}' is not")
        if required and options.beam_groups > 1:
            raise SettingsError("terms need the whole beam, which groups would divide; leave out one of them")
        is_over = constraints.is_over if constraints.stops else None
        return Request(0, tokens, options, prefix, constraints.forbidden, required, is_over)

    def _translation(
        self, source: str, found: Hypothesis, links: Links | None, constraints: Constraints
    ) -> Translation:
        text = self.target.decode(found.tokens)
        missing = constraints.missing(source, text) if constraints.has_terms else []
        return Translation(text, found.score, found.ended, tuple(missing), tuple(links or ()))

    def _links_of(
        self,
        texts: Sequence[str],
        parts: Sequence[list[Part]],
        leads: Sequence[Lead],
        hypotheses: Sequence[list[Hypothesis]],
    ) -> list[Links | None]:
        """Which words of each hypothesis belong to which words of the text that its part was cut from."""
        read = [
            worded(part, lead.source, words)
            for text, several, lead in zip(texts, parts, leads, strict=True)
            for words in [self.source.words_of(text)]
            for part in several
            if part.tokens
        ]
        pairs = [(source, one.tokens) for source, several in zip(read, hypotheses, strict=True) for one in several]
        return self.links(
            [source for source, _ in pairs], [(written, self.target.words(written)) for _, written in pairs]
        )

    def links(self, sources: Sequence[Worded], targets: Sequence[Worded]) -> list[Links | None]:
        """Which words of each pair belong together; None for a pair too long to read at once."""
        looked = self.engine.looked_at([tokens for tokens, _ in sources], [tokens for tokens, _ in targets])
        return [
            None if weights is None else word_links(weights, source_words, target_words)
            for weights, (_, source_words), (_, target_words) in zip(looked, sources, targets, strict=True)
        ]

    def said(self, request: Request, constraints: Constraints) -> Iterator[tuple[str, bool]]:
        """The text of an answer as it grows, and whether it came to a stop string; what is not certain is left out."""
        said = ""
        for tokens, ended in self.engine.stream(request):
            whole = text = self.target.decode(tokens)
            if not ended:
                text = text[: max(0, len(text) - constraints.held_back)].rstrip("\ufffd")
                text = text.rpartition(" ")[0] if self.target.closes_spaces else text
            text = constraints.stopped(text)
            is_over = ended and constraints.stopped(whole) != whole
            if (len(text) > len(said) and text.startswith(said)) or is_over:
                said = text
                yield said, is_over

    def parts_of(self, texts: Sequence[str]) -> list[list[Part]]:
        """Cut those texts that are too long; each part comes with what stood before it."""
        pairs = zip(texts, self.encode(texts), strict=True)
        return [self.parts(tokens) if text.strip() and tokens else [] for text, tokens in pairs]

    def parts(self, tokens: list[int]) -> list[Part]:
        return cut_tokens(self.source, tokens, len(tokens) if self._side else self._longest)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text; where texts have to be pictures, one that is none is refused."""
        encoded = self.source.encode_batch(list(texts))
        for text, tokens in zip(texts, encoded, strict=True) if self._side else ():
            if text.strip():
                refuse_no_picture(text, tokens, self.source, self._side or 0)
        return encoded


def worded(part: Part, lead: Sequence[int], words: Sequence[int | None]) -> Worded:
    """The tokens of a part behind its lead, with their words, of those of the whole text."""
    own = part.of(words)[part.repeated if lead else 0 :]
    return part.after(lead), [*[None] * len(lead), *own]


def led(lead: Sequence[int], worded: Worded) -> Worded:
    """Put tokens that are of no word before others."""
    tokens, words = worded
    return [*lead, *tokens], [*[None] * len(lead), *words]


def _instead(answers: Sequence[Translation], good: Sequence[bool], others: Sequence[Translation]) -> list[Translation]:
    """Answers with others in the places of those that are no good, as far as they say something new."""
    said = {one.text for one, is_good in zip(answers, good, strict=True) if is_good}
    texts = [one.text for one in others]
    new = (one for place, one in enumerate(others) if one.text not in said and one.text not in texts[:place])
    found = [one if is_good else next(new, None) for one, is_good in zip(answers, good, strict=True)]
    return [one for one in found if one is not None]
