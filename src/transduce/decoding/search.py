"""Search as a stepper: requests come in at any time, every `advance` writes one token, finished ones come out.

Sentences that want the same method and width stand in one *cohort* and are stepped together, each at its own
position; those that may write the tokens of a list only have cohorts of their own. Translating a file loops over
`advance`; a server feeds it while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.decoding.candidates import Candidates
from transduce.decoding.choice import CHOOSERS, Choice, sample
from transduce.decoding.opening import Opening
from transduce.decoding.options import Request, Result
from transduce.decoding.sentence import Sentence
from transduce.errors import TransduceError
from transduce.models.interface import AnyTransducer, State
from transduce.text.specials import Specials


def source_batch(sources: Sequence[Sequence[int]], specials: Specials, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pad sources, each with its end token.  -> tokens (B S), allowed (B S)."""
    rows = [torch.tensor([*source, specials.end]) for source in sources]
    tokens_BS = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=specials.pad)
    length_B1 = torch.tensor([[len(row)] for row in rows])
    allowed_BS = torch.arange(tokens_BS.shape[1]) < length_B1
    return tokens_BS.to(device), allowed_BS.to(device)


def _widened(tokens: Tensor, capacity: int) -> Tensor:
    """Make room for more tokens.  (… C) -> (… capacity)."""
    return torch.nn.functional.pad(tokens, (0, capacity - tokens.shape[-1]))


class Kind(NamedTuple):
    """What sentences of one cohort have in common."""

    method: str
    width: int
    listed: bool
    """Whether they may write the tokens of their own lists only."""

    @classmethod
    def of(cls, request: Request) -> Kind:
        return cls(request.options.method, request.options.width, request.candidates is not None)


class Cohort:
    """Sentences of one kind, stepped together.  S sentences × W openings = R rows."""

    def __init__(self, model: AnyTransducer, specials: Specials, kind: Kind) -> None:
        method, width, listed = kind
        self.model, self.specials, self.width = model, specials, width
        self.choose = CHOOSERS[method]
        self.candidates = Candidates(model, specials, width) if listed else None
        self.sentences: list[Sentence] = []
        self.state: State | None = None
        self.device = model.output.weight.device
        self.last_SW = torch.empty(0, width, dtype=torch.long, device=self.device)
        self.score_SW = torch.empty(0, width, device=self.device)
        self.length_S = torch.empty(0, dtype=torch.long, device=self.device)
        self.history_SWC = torch.empty(0, width, 16, dtype=torch.long, device=self.device)

    def admit(self, sentences: Sequence[Sentence], state: State) -> None:
        """Take in new sentences, which stand behind their prefix, most of which is empty."""
        opening = Opening.of([sentence.request.prefix for sentence in sentences], self.specials, self.device)
        state, read_S = opening.read(self.model, state)
        score_SW = read_S[:, None].repeat(1, self.width)
        if self.choose is not sample:  # all openings are alike at first: only one of them counts
            score_SW[:, 1:] = -torch.inf
        capacity = max(self.history_SWC.shape[2], opening.tokens.shape[1])
        self.history_SWC = _widened(self.history_SWC, capacity)
        written_SWC = _widened(opening.tokens, capacity)[:, None].repeat(1, self.width, 1)
        self.sentences += sentences
        if self.candidates is not None:
            self.candidates.gather(self.sentences)
        self.state = state if self.state is None else self.state.join(state)
        self.last_SW = torch.cat([self.last_SW, opening.last[:, None].repeat(1, self.width)])
        self.score_SW = torch.cat([self.score_SW, score_SW])
        self.length_S = torch.cat([self.length_S, opening.lengths])
        self.history_SWC = torch.cat([self.history_SWC, written_SWC])

    def advance(self) -> list[Result]:
        """Write one token in every opening; return the sentences that are done."""
        choice = self._choice()
        self._note_endings(choice)
        self._append(choice)
        done = [self._is_done(index) for index in range(len(self.sentences))]
        results = [sentence.result() for sentence, is_done in zip(self.sentences, done, strict=True) if is_done]
        self._keep([index for index, is_done in enumerate(done) if not is_done], choice.parents)
        return results

    def drop(self, ids: set[int]) -> None:
        """Forget these requests."""
        kept = [index for index, sentence in enumerate(self.sentences) if sentence.request.id not in ids]
        self._keep(kept, torch.arange(self.width, device=self.device).expand(len(self.sentences), -1))

    def _choice(self) -> Choice:
        """Step the model and choose among the continuations: all tokens, or those that are candidates."""
        assert self.state is not None
        hidden_RD, self.state = self.model.step(self.last_SW.flatten(), self.state)
        if self.candidates is None:
            specials, score_RV = self.specials, self.model.logits(hidden_RD).float()
        else:
            specials, score_RV = self.candidates.specials, self.candidates.score(hidden_RD)
        self._adjust(score_RV.view(len(self.sentences), self.width, -1))
        score_RV = score_RV.log_softmax(dim=-1)
        score_RV[:, specials.pad] = -torch.inf
        score_RV[:, specials.start] = -torch.inf
        score_SWV = score_RV.view(len(self.sentences), self.width, -1) + self.score_SW[:, :, None]
        choice = self.choose(score_SWV, specials.end, self.sentences)
        return choice if self.candidates is None else replace(choice, tokens=self.candidates.tokens[choice.tokens])

    def _adjust(self, score_SWV: Tensor) -> None:
        for index, sentence in enumerate(self.sentences):
            if sentence.adjustments:
                written_WL = self.history_SWC[index, :, : int(self.length_S[index])]
                score_WV = score_SWV[index] if self.candidates is None else self.candidates.spread(score_SWV[index])
                for adjust in sentence.adjustments:
                    adjust(score_WV, written_WL)
                if self.candidates is not None:
                    score_SWV[index] = score_WV[:, self.candidates.tokens]

    def _note_endings(self, choice: Choice) -> None:
        for index, rank in choice.ended.nonzero().tolist():
            parent = int(choice.ended_parents[index, rank])
            tokens = self.history_SWC[index, parent, : int(self.length_S[index])].tolist()
            self.sentences[index].finish(tokens, float(choice.ended_scores[index, rank]), ended=True)

    def _append(self, choice: Choice) -> None:
        capacity = self.history_SWC.shape[2]
        if int(self.length_S.max()) >= capacity:
            self.history_SWC = _widened(self.history_SWC, 2 * capacity)
        if self.width > 1:
            parent_SWC = choice.parents[:, :, None].expand(-1, -1, self.history_SWC.shape[2])
            self.history_SWC = self.history_SWC.gather(1, parent_SWC)
        self.history_SWC[torch.arange(len(self.sentences), device=self.device), :, self.length_S] = choice.tokens
        self.length_S = self.length_S + 1
        self.last_SW, self.score_SW = choice.tokens, choice.scores

    def _is_done(self, index: int) -> bool:
        """By the stop rule, or nothing alive, or no room: then what is unfinished fills up what is missing."""
        sentence, length = self.sentences[index], int(self.length_S[index])
        scores: list[float] = self.score_SW[index].tolist()
        alive = [(rank, score) for rank, score in enumerate(scores) if score > -float("inf")]
        if sentence.is_over(self.width, max(scores), length):
            return True
        if alive and length < sentence.max_length:
            return False
        if not alive and not sentence.finished:
            raise TransduceError(
                "no answer can have min_length and no_repeat_ngram and lack what is forbidden; ask for less"
                if sentence.adjustments
                else "the model's scores are not finite, so no token is better than another; train it again"
            )
        for rank, score in alive if len(sentence.finished) < sentence.options.nbest else ():
            sentence.finish(self.history_SWC[index, rank, :length].tolist(), score, ended=False)
        return True

    def _keep(self, kept: list[int], parents: Tensor) -> None:
        """Select the rows that go on: of the kept sentences, the openings that were continued."""
        if not kept:
            self.sentences = []  # an empty cohort is thrown away by its search
            return
        index_S = torch.tensor(kept, device=self.device)
        row_R = (index_S[:, None] * self.width + parents[index_S]).flatten()
        everything = len(kept) == len(self.sentences)
        if not (everything and torch.equal(row_R, torch.arange(len(row_R), device=self.device))):
            assert self.state is not None
            self.state = self.state.select(row_R)
        if not everything:
            self.sentences = [self.sentences[index] for index in kept]
            self.last_SW, self.score_SW = self.last_SW[index_S], self.score_SW[index_S]
            self.length_S, self.history_SWC = self.length_S[index_S], self.history_SWC[index_S]
            if self.candidates is not None:
                self.candidates.keep(index_S, self.sentences)


class Search:
    """The stepper over one model: `admit`, `advance` until nothing is active, `drop` what nobody waits for."""

    def __init__(self, model: AnyTransducer, source: Specials, target: Specials) -> None:
        self.model, self.source, self.target = model, source, target
        self.cohorts: dict[Kind, Cohort] = {}

    @property
    def active(self) -> int:
        """How many requests are on their way."""
        return sum(len(cohort.sentences) for cohort in self.cohorts.values())

    def admit(self, requests: Sequence[Request]) -> None:
        """Read the sources and begin."""
        groups: dict[Kind, list[Request]] = {}
        for request in requests:
            groups.setdefault(Kind.of(request), []).append(request)
        device = self.model.output.weight.device
        with torch.inference_mode():
            for kind, group in groups.items():
                tokens_BS, allowed_BS = source_batch([request.source for request in group], self.source, device)
                state = self.model.start(self.model.encode(tokens_BS, allowed_BS), kind.width)
                cohort = self.cohorts.setdefault(kind, Cohort(self.model, self.target, kind))
                limit = self.model.max_target
                cohort.admit([Sentence.of(request, self.target, limit) for request in group], state)

    def advance(self) -> list[Result]:
        """Write one more token everywhere; return what is finished."""
        with torch.inference_mode():
            results = [result for cohort in self.cohorts.values() for result in cohort.advance()]
        self._tidy()
        return results

    def drop(self, ids: Iterable[int]) -> None:
        """Forget these requests at once."""
        with torch.inference_mode():
            for cohort in self.cohorts.values():
                cohort.drop(set(ids))
        self._tidy()

    def _tidy(self) -> None:
        self.cohorts = {kind: cohort for kind, cohort in self.cohorts.items() if cohort.sentences}
