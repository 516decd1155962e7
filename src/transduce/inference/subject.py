"""One text under inspection: its request, the search for it on a twin of the model, and what is replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transduce.errors import SettingsError
from transduce.inference.search.options import Hypothesis, Request, Result
from transduce.inference.search.search import Search
from transduce.inspection.beam_tree import BeamHypothesis
from transduce.inspection.replay import ForcedDecoding
from transduce.models.interface import AnyTransducer
from transduce.text.tokenizer import AnyTokenizer


@dataclass(frozen=True)
class Subject:
    """A text to be inspected, with what is needed to search again."""

    text: str
    """The source text as far as it is read, or the prompt."""
    request: Request
    source: AnyTokenizer
    target: AnyTokenizer
    words: Sequence[int | None] = ()
    """The word that each source token belongs to; None outside of words."""
    language_tokens: int = 0
    """Number of language tokens at the beginning of the prefix, which users do not see."""

    def search(self, model: AnyTransducer, request: Request | None = None) -> Result:
        """Search on a model that nobody else uses: a twin."""
        search = Search(model.eval(), self.source.specials, self.target.specials)
        search.admit([request or self.request])
        results: list[Result] = []
        while search.active:
            results += search.advance()
        (result,) = results
        result.checked()
        return result

    def force(self, found: Hypothesis) -> ForcedDecoding:
        """Return what is replayed of a hypothesis."""
        request = self.request
        first = self.target.start if request.first is None else request.first
        source = [*request.source, self.source.end] if request.first is None else []
        target = [first, *found.tokens, *([self.target.end] if found.ended else [])]
        pieces = self.target.pieces(target)
        return ForcedDecoding(
            source_tokens=tuple(source),
            read_tokens=tuple(target[:-1]),
            produced_tokens=tuple(target[1:]),
            source_pieces=tuple(self.source.pieces(source)),
            read_pieces=tuple(pieces[:-1]),
            produced_pieces=tuple(pieces[1:]),
            source=self.text,
            output=self._output(found),
        )

    def _output(self, found: Hypothesis) -> str:
        """The text of a hypothesis; of a prompt, what follows it."""
        prompt = found.tokens[: self.request.unscored]
        before, whole = self.target.decode(prompt), self.target.decode(found.tokens)
        return whole[len(before) :] if prompt and whole.startswith(before) else whole

    def describe(self, found: Sequence[Hypothesis]) -> tuple[BeamHypothesis, ...]:
        """Return hypotheses, best first, with texts, pieces and ranks."""
        return tuple(
            BeamHypothesis(
                rank=rank,
                text=self.target.decode(one.tokens),
                tokens=tuple(one.tokens[self.language_tokens :]),
                pieces=tuple(self.target.pieces(one.tokens[self.language_tokens :])),
                score=one.score,
                log_probability=one.log_probability,
                ended=one.ended,
            )
            for rank, one in enumerate(found, start=1)
        )

    def positions(self, words: Iterable[int], tokens: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the positions of source tokens: those of some words, and some tokens; both count from 0."""
        found = set(tokens)
        for word in words:
            own = [position for position, other in enumerate(self.words) if other == word]
            if not own:
                count = len({other for other in self.words if other is not None})
                raise SettingsError(f"no word {word}; the text has words 0 to {count - 1}")
            found.update(own)
        last = len(self.request.source)
        wrong = next((position for position in found if not 0 <= position <= last), None)
        if wrong is not None:
            raise SettingsError(f"no source token {wrong}; the text has tokens 0 to {last}, the end token last")
        return tuple(sorted(found))


def prefix_tokens(prefix: Sequence[int], tokenizer: AnyTokenizer) -> list[int]:
    """Return the tokens of a prefix after a check of their range."""
    wrong = next((token for token in prefix if not 0 <= token < tokenizer.size), None)
    if wrong is not None:
        raise SettingsError(f"the prefix has token {wrong}, but the vocabulary has tokens 0 to {tokenizer.size - 1}")
    if tokenizer.end in prefix:
        raise SettingsError("the prefix has the end token, which nothing can follow; its score is in the beam tree")
    return list(prefix)
