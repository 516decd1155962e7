"""The search of CTranslate2, for requests that it can answer as our own search does."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from transduce.inference.pace import Pace, usual
from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.search.penalty import power
from transduce.text.tokenizer.special import Specials


def refusal_of(request: Request, positions: int) -> str | None:
    """Why a request is not for CTranslate2, which was given so many positions.

    That is what it would do in another way than our search, or not at all.
    """
    options = request.options
    if request.max_total_length >= positions:
        return f"CTranslate2 was given {positions:,} positions"
    if options.method == "sample":
        return "CTranslate2 does not draw repeatable samples"
    if options.method == "beam" and options.beam_size > 1:
        if options.length_normalization != "power" and options.length_penalty:
            return f"CTranslate2 has no length penalty '{options.length_normalization}'"
        if options.stop_rule != "beam_finished":
            return f"CTranslate2 has no stop rule '{options.stop_rule}'"
    if options.presence_penalty or options.frequency_penalty:
        return "CTranslate2 has no presence or frequency penalty"
    if options.beam_groups > 1 or options.coverage_penalty:
        return "CTranslate2 has no diverse groups, and another coverage penalty"
    if request.required or request.should_stop is not None:
        return "CTranslate2 forces no words, and stops at no strings"
    if request.shortlist is not None:
        return "CTranslate2 takes candidates from a shortlist's file only"
    return "CTranslate2 scores prefixes in another way" if request.prefix else None


def nearest(options: SearchOptions, said: Collection[str]) -> SearchOptions:
    """Return options whose beam search is CTranslate2's own, where nobody said that it should be another."""
    own = {"length_normalization": "power", "stop_rule": "beam_finished"}
    return options.but(**{name: value for name, value in own.items() if name not in said})


class CTranslate2Engine:
    """Answers by CTranslate2, which sorts what it is given by length; several threads may ask at a time."""

    def __init__(
        self,
        library: Any,
        folder: str,
        vocabularies: tuple[list[str], list[str]],
        specials: Specials,
        limit: int | None,
        pace: Pace | None = None,
        shortlisted: bool = False,
    ) -> None:
        self._source, target = vocabularies
        self._target = {piece: token for token, piece in enumerate(target)}
        self._pieces = target
        self._specials, self._limit = specials, limit
        self._shortlisted = shortlisted
        """Whether the folder has a vocabulary map, which is then used; lists of a batch are united."""
        self.pace = pace or usual()
        """Its batch may be changed at any time, its workers and threads may not."""
        self._translator = library.Translator(
            folder, device="cpu", inter_threads=self.pace.workers, intra_threads=self.pace.threads
        )

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis] | None]:
        """Return the hypotheses of each request, in the order of the requests.

        None where our search would not have said that: a token that frames sentences, from a model that has learnt
        little, or something that the maximum length cut off, which we put behind all that ended.
        """
        answers: dict[int, list[Hypothesis] | None] = {}
        for options, group in _alike(requests):
            for request, found in zip(group, self._search(group, options), strict=True):
                answers[request.id] = found
        return [answers[request.id] for request in requests]

    def _search(self, requests: Sequence[Request], options: SearchOptions) -> Iterator[list[Hypothesis] | None]:
        sentences = [ActiveRequest.of(request, self._specials, self._limit) for request in requests]
        longest = max(sentence.max_length for sentence in sentences)
        forbidden = [[self._pieces[token] for token in phrase] for phrase in requests[0].forbidden if phrase]
        results = self._translator.translate_batch(
            [[self._source[token] for token in request.source] for request in requests],
            beam_size=options.width,
            num_hypotheses=options.n_best,
            length_penalty=options.length_penalty if options.width > 1 else 0.0,
            max_decoding_length=longest,
            min_decoding_length=min(options.min_length, longest),
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            suppress_sequences=forbidden or None,
            max_input_length=0,
            max_batch_size=self.pace.batch,
            use_vmap=self._shortlisted,
            return_scores=True,
        )
        for sentence, result in zip(sentences, results, strict=True):
            for pieces, score in zip(result.hypotheses, result.scores, strict=True):
                tokens = [self._target[piece] for piece in pieces]
                ended = len(tokens) < sentence.max_length
                length = power(len(tokens) + ended, options.length_penalty) if options.width > 1 else 1.0
                sentence.finish(0, tokens, score * length, len(tokens) + ended, ended)
            yield sentence.result().hypotheses if self._is_usual(sentence, longest) else None

    def _is_usual(self, sentence: ActiveRequest, longest: int) -> bool:
        """Whether our search would have said the same.

        What ended before its own maximum length would have ended then too, whatever the maximum of the others was.
        """
        frames = {self._specials.pad, self._specials.start}
        may_be_cut = sentence.options.width == 1 and sentence.max_length == longest
        return all((found.ended or may_be_cut) and frames.isdisjoint(found.tokens) for found in sentence.hypotheses)


def _alike(requests: Sequence[Request]) -> Iterator[tuple[SearchOptions, list[Request]]]:
    """Group requests that want the same; their maximum lengths may differ."""
    groups: dict[tuple[int, str], list[Request]] = {}
    for request in requests:  # whoever asks for many lines hands over the same options each time
        groups.setdefault((id(request.options), repr(request.forbidden)), []).append(request)
    for group in groups.values():
        yield group[0].options, group
