"""Search as a stepper: requests come in at any time, every `advance` writes one token, finished ones come out.

Sentences that are searched for in the same way stand in one *cohort* and are stepped together, each at its own
position; those that may write the tokens of a list only have cohorts of their own. Translating a file loops over
`advance`; a server feeds it while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from transduce.errors import TransduceError
from transduce.inference.alignment import Weights, looked_at
from transduce.inference.padding import source_batch
from transduce.inference.search.candidates import Candidates
from transduce.inference.search.options import Request, Result
from transduce.inference.search.prefix import Opening
from transduce.inference.search.sentence import Sentence
from transduce.inference.search.strategy import CHOOSERS, Choice, Continuations, Way, way_of
from transduce.models.interface import AnyTransducer, State
from transduce.text.tokenizer.special import Specials

# The coverage penalty (Wu et al. 2016, equation 14): an answer that left source tokens unread loses by it.

LEAST = 1e-6
"""Attention that counts as none at all."""


def put_in_order(model: AnyTransducer, sentences: Sequence[Sentence], source: Specials, target: Specials) -> None:
    """Take the penalty off the scores of what has ended in sentences that ask for it.

    Answers are looked at once more when all of them are there: the search itself needs no attention weights.
    """
    for sentence in sentences:
        strength = sentence.options.coverage_penalty
        if strength:
            targets = [hypothesis.tokens for hypothesis in sentence.found]
            looked = iter(looked_at(model, [sentence.request.source] * len(targets), targets, source, target))
            sentence.finished = [
                [replace(found, score=found.score + strength * uncovered(next(looked))) for found in group]
                for group in sentence.finished
            ]


def uncovered(weight_TS: Weights) -> float:
    """Σ log min(Σ weight, 1) over the source tokens: 0 where each was looked at as much as one token can."""
    total_S = weight_TS.sum(axis=0, dtype=np.float64)
    return float(np.log(total_S.clip(LEAST, 1.0)).sum())


MOST_PADDING = 0.15
"""Share of padding in what an encoder reads at once …"""
FEW_TOKENS = 128
"""… unless it is so little that a further call would cost as much."""


def _widened(tokens: Tensor, capacity: int) -> Tensor:
    """Make room for more tokens.  (… C) -> (… capacity)."""
    return torch.nn.functional.pad(tokens, (0, capacity - tokens.shape[-1]))


class Cohort:
    """Sentences that are searched for in the same way, stepped together.  S sentences × W openings = R rows."""

    def __init__(self, model: AnyTransducer, specials: Specials, way: Way) -> None:
        self.model, self.specials, self.way, self.width = model, specials, way, way.width
        self.choose = CHOOSERS[way.chooser]
        self.candidates = Candidates(model, specials, way.width) if way.listed else None
        self.sentences: list[Sentence] = []
        self.state: State | None = None
        self.device = model.output.weight.device
        self.last_SW = torch.empty(0, self.width, dtype=torch.long, device=self.device)
        self.score_SW = torch.empty(0, self.width, device=self.device)
        self.length_S = torch.empty(0, dtype=torch.long, device=self.device)
        self.history_SWC = torch.empty(0, self.width, 16, dtype=torch.long, device=self.device)

    def admit(self, sentences: Sequence[Sentence], state: State) -> None:
        """Take in new sentences, which stand behind their prefix, most of which is empty."""
        opening = Opening.of([sentence.request for sentence in sentences], self.specials, self.device)
        state, read_S = opening.read(self.model, state)
        score_SW = read_S[:, None].repeat(1, self.width)
        if self.way.chooser != "sample":  # all openings of a group are alike at first: only one of them counts
            rank_W = torch.arange(self.width, device=self.device)
            score_SW[:, rank_W % (self.width // self.way.groups) > 0] = -torch.inf
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

    def advance(self) -> list[Sentence]:
        """Write one token in every opening; return the sentences that are done."""
        choice = self._choice()
        self._note_endings(choice)
        self._append(choice)
        self._note_stops()
        done = self._done()
        finished = [sentence for sentence, is_done in zip(self.sentences, done, strict=True) if is_done]
        self._keep([index for index, is_done in enumerate(done) if not is_done], choice.parents)
        return finished

    def agreed(self, index: int) -> list[int]:
        """The tokens that all openings and all that has ended of a sentence begin with: they will not change."""
        alive_W = self.score_SW[index] > -torch.inf
        length = int(self.length_S[index])
        texts = [*self.history_SWC[index, alive_W, :length].tolist(), *(h.tokens for h in self.sentences[index].found)]
        return [same[0] for same in takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))]

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
        for token in {specials.pad, specials.start} - {specials.end}:  # in some imported models the end stands first
            score_RV[:, token] = -torch.inf
        ways = Continuations(score_RV.view(len(self.sentences), self.width, -1), self.score_SW)
        choice = self.choose(ways, specials.end, self.sentences)
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
            self.sentences[index].finish(parent, tokens, float(choice.ended_scores[index, rank]), len(tokens) + 1)

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

    def _note_stops(self) -> None:
        """End the openings that came to a stop string; they have no end token, and need none."""
        for index, sentence in enumerate(self.sentences):
            is_over = sentence.request.is_over
            if is_over is None:
                continue
            for opening, score in enumerate(self.score_SW[index].tolist()):
                tokens = self.history_SWC[index, opening, : int(self.length_S[index])].tolist()
                if score > -float("inf") and is_over(tokens):
                    whole = sentence.progress[opening].is_whole  # what lacks something comes behind all that does not
                    sentence.finish(opening, tokens, score, len(tokens), ended=whole)
                    self.score_SW[index, opening] = -torch.inf

    def _done(self) -> list[bool]:
        """Which sentences are done."""
        lengths, scores = self.length_S.tolist(), self.score_SW.tolist()  # asked of the device once for all
        return [
            sentence.is_over(max(own), length) or self._has_run_out(index, length, own)
            for index, (sentence, length, own) in enumerate(zip(self.sentences, lengths, scores, strict=True))
        ]

    def _has_run_out(self, index: int, length: int, scores: list[float]) -> bool:
        """Whether nothing is alive, or there is no room; then what is unfinished fills up what is missing."""
        sentence = self.sentences[index]
        alive = [(opening, score) for opening, score in enumerate(scores) if score > -float("inf")]
        if alive and length < sentence.max_length:
            return False
        if not alive and not sentence.found:
            raise TransduceError(
                "no answer can have min_length and no_repeat_ngram_size and lack what is forbidden; ask for less"
                if sentence.adjustments
                else "the model's scores are not finite, so no token is better than another; train it again, with a "
                "lower training.learning_rate or with training.max_grad_norm"
            )
        whole = [(opening, score) for opening, score in alive if sentence.progress[opening].is_whole]
        for opening, score in (whole or alive) if len(sentence.found) < sentence.options.n_best else ():
            sentence.finish(opening, self.history_SWC[index, opening, :length].tolist(), score, length, ended=False)
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


def _of_similar_length(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Yield requests that are read together: an encoder is not to work on more padding than text."""
    group: list[Request] = []
    for request in sorted(requests, key=lambda request: len(request.source)):
        longest = len(request.source) + 1
        padding = sum(longest - 1 - len(other.source) for other in group)
        if padding > MOST_PADDING * longest * len(group) and longest * len(group) > FEW_TOKENS:
            yield group
            group = []
        group.append(request)
    if group:
        yield group


class Search:
    """The stepper over one model: `admit`, `advance` until nothing is active, `drop` what nobody waits for."""

    def __init__(self, model: AnyTransducer, source: Specials, target: Specials) -> None:
        self.model, self.source, self.target = model, source, target
        self.cohorts: dict[Way, Cohort] = {}

    @property
    def active(self) -> int:
        """How many requests are on their way."""
        return sum(len(cohort.sentences) for cohort in self.cohorts.values())

    def admit(self, requests: Sequence[Request]) -> None:
        """Read the sources and begin."""
        ways: dict[Way, list[Request]] = {}
        for request in requests:
            ways.setdefault(way_of(request), []).append(request)
        device = self.model.output.weight.device
        limit = self.model.max_target
        with torch.inference_mode():
            for way, group in ways.items():
                cohort = self.cohorts.setdefault(way, Cohort(self.model, self.target, way))
                for alike in _of_similar_length(group):
                    tokens_BS, allowed_BS = source_batch([request.source for request in alike], self.source, device)
                    state = self.model.start(self.model.encode(tokens_BS, allowed_BS), way.width)
                    cohort.admit([Sentence.of(request, self.target, limit) for request in alike], state)

    def advance(self) -> list[Result]:
        """Write one more token everywhere; return what is finished."""
        with torch.inference_mode():
            finished = [sentence for cohort in self.cohorts.values() for sentence in cohort.advance()]
            put_in_order(self.model, finished, self.source, self.target)
        self._tidy()
        return [sentence.result() for sentence in finished]

    def agreed(self) -> dict[int, list[int]]:
        """What each request on its way will begin with, whatever comes: one may show it already."""
        return {
            sentence.request.id: cohort.agreed(index)
            for cohort in self.cohorts.values()
            for index, sentence in enumerate(cohort.sentences)
        }

    def drop(self, ids: Iterable[int]) -> None:
        """Forget these requests at once."""
        with torch.inference_mode():
            for cohort in self.cohorts.values():
                cohort.drop(set(ids))
        self._tidy()

    def _tidy(self) -> None:
        self.cohorts = {kind: cohort for kind, cohort in self.cohorts.items() if cohort.sentences}
