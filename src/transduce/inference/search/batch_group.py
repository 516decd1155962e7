"""A batch group: requests with the same search key, stepped together with one decoding state.

Letters: B requests, W beams of each, R = B × W rows, C capacity of the history in tokens, P tokens of the longest
prefix, V vocabulary, U tokens of the union of shortlists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from transduce.errors import TransduceError, as_exception
from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.options import Request
from transduce.inference.search.strategy import STRATEGIES, SearchKey, Selection, StepScores
from transduce.inference.search.trace import TraceStep, trace_step, trace_stop
from transduce.models.interface import AnyTransducer, Scorer, State, rows_of
from transduce.text.tokenizer.special import Specials

Finished = tuple[ActiveRequest, Exception | None]
"""A request that is done, with the error where it failed."""


MAX_IDLE_STEPS = 16
"""Steps after which a place in the state that nobody took is given up."""


class BatchGroup:
    """Requests that are stepped together, each at its own position.

    A finished request leaves its place in the decoding state, and an arrival takes it over: neither copies the caches
    of the others. Places that stay idle cost a row of every step. While requests arrive, places are kept for the next
    ones for some steps; otherwise the state is copied without them when they have cost as much as a copy.
    """

    def __init__(self, model: AnyTransducer, specials: Specials, key: SearchKey, isolated: bool = False) -> None:
        self.model, self.specials, self.key, self.width = model, specials, key, key.width
        self.isolated = isolated
        """Whether it is stepped apart from other groups: its requests were in a group that failed."""
        self.strategy = STRATEGIES[key.strategy]
        self.shortlist = ShortlistScorer(model, specials, key.width) if key.shortlisted else None
        self.requests: list[ActiveRequest] = []
        self.state: State | None = None
        self._places: list[int] = []
        """The sentence of the state that each request has."""
        self._idle_rows = 0
        """Rows of idle places, added up over the steps since the last copy."""
        self._steps_alone = MAX_IDLE_STEPS
        """Steps since requests joined those that were there."""
        self.device = model.output.weight.device
        self.last_BW = torch.empty(0, self.width, dtype=torch.long, device=self.device)
        self.score_BW = torch.empty(0, self.width, device=self.device)
        self.length_B = torch.empty(0, dtype=torch.long, device=self.device)
        self.history_BWC = torch.empty(0, self.width, 16, dtype=torch.long, device=self.device)

    def add(self, requests: Sequence[ActiveRequest], state: State) -> None:
        """Add a micro-batch that was just encoded; its prefixes, most of them empty, are read first."""
        prefix = Prefix.of([active.request for active in requests], self.specials, self.device)
        state, read_B = prefix.read(self.model, state)
        score_BW = read_B[:, None].repeat(1, self.width)
        if self.key.strategy != "sample":  # the beams of a beam group are equal at first: only one of them counts
            rank_W = torch.arange(self.width, device=self.device)
            score_BW[:, rank_W % (self.width // self.key.groups) > 0] = -torch.inf
        capacity = max(self.history_BWC.shape[2], prefix.tokens.shape[1])
        self.history_BWC = _grow(self.history_BWC, capacity)
        written_BWC = _grow(prefix.tokens, capacity)[:, None].repeat(1, self.width, 1)
        self.requests += requests
        if self.shortlist is not None:
            self.shortlist.gather(self.requests)
        self._take_places(state)
        self.last_BW = torch.cat([self.last_BW, prefix.last[:, None].repeat(1, self.width)])
        self.score_BW = torch.cat([self.score_BW, score_BW])
        self.length_B = torch.cat([self.length_B, prefix.lengths])
        self.history_BWC = torch.cat([self.history_BWC, written_BWC])

    @property
    def next_tokens(self) -> Tensor:
        """What the next step reads, for every row of the state.  -> (R)."""
        if self._in_order:
            return self.last_BW.flatten()
        token_SW = torch.zeros(self._sentences, self.width, dtype=torch.long, device=self.device)
        token_SW[self._places] = self.last_BW
        return token_SW.flatten()

    def advance(self, hidden: Tensor, state: State) -> list[Finished]:
        """Write one token in every beam, given what `model.step` returned; return the requests that are done."""
        self.state = state
        if not self._in_order:
            hidden = hidden.view(self._sentences, self.width, -1)[self._places].flatten(0, 1)
        selection = self._select(hidden)
        self._finish_ended(selection)
        self._append(selection)
        errors = self._apply_stop_strings()
        done = self._done(errors)
        finished = [
            (active, errors.get(index))
            for index, (active, is_done) in enumerate(zip(self.requests, done, strict=True))
            if is_done
        ]
        self._keep([index for index, is_done in enumerate(done) if not is_done], selection.parents)
        return finished

    def agreed(self, index: int) -> list[int]:
        """The tokens that all beams and finished hypotheses of a request begin with: they will not change."""
        alive_W = self.score_BW[index] > -torch.inf
        length = int(self.length_B[index])
        finished = [hypothesis.tokens for hypothesis in self.requests[index].hypotheses]
        texts = [*self.history_BWC[index, alive_W, :length].tolist(), *finished]
        return [same[0] for same in takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))]

    def drop(self, ids: set[int]) -> None:
        """Remove these requests."""
        kept = [index for index, active in enumerate(self.requests) if active.request.id not in ids]
        self._keep(kept, torch.arange(self.width, device=self.device).expand(len(self.requests), -1))

    def _select(self, hidden_RD: Tensor) -> Selection:
        """Score the continuations, of all tokens or of the shortlist, and let the strategy select."""
        if self.shortlist is None:
            specials, score_RV = self.specials, self.model.logits(hidden_RD).float()
        else:
            specials, score_RV = self.shortlist.specials, self.shortlist.score(hidden_RD)
        self._process_logits(score_RV.view(len(self.requests), self.width, -1))
        score_RV = score_RV.log_softmax(dim=-1)
        for token in {specials.pad, specials.start} - {specials.end}:  # some imported models start with the end token
            score_RV[:, token] = -torch.inf
        scores = StepScores(score_RV.view(len(self.requests), self.width, -1), self.score_BW)
        selection = self.strategy(scores, specials.end, self.requests)
        for index, active in enumerate(self.requests):
            if active.request.trace:
                length = int(self.length_B[index])
                step = trace_step(scores.row(index), selection.row(index), specials.end, length)
                active.trace.append(self._with_tokens(step))
        return (
            selection if self.shortlist is None else replace(selection, tokens=self.shortlist.tokens[selection.tokens])
        )

    def _with_tokens(self, step: TraceStep) -> TraceStep:
        """Name the tokens of a trace by their ids, where they are columns of a shortlist."""
        if self.shortlist is None:
            return step
        tokens = self.shortlist.tokens.tolist()
        named = [replace(one, token=tokens[one.token]) for one in step.candidates if one.token is not None]
        return replace(step, candidates=tuple(named))

    def _process_logits(self, score_BWV: Tensor) -> None:
        for index, active in enumerate(self.requests):
            if active.processors:
                written_WL = self.history_BWC[index, :, : int(self.length_B[index])]
                score_WV = score_BWV[index] if self.shortlist is None else self.shortlist.spread(score_BWV[index])
                for process in active.processors:
                    process(score_WV, written_WL)
                if self.shortlist is not None:
                    score_BWV[index] = score_WV[:, self.shortlist.tokens]

    def _finish_ended(self, selection: Selection) -> None:
        for index, rank in selection.ended.nonzero().tolist():
            parent = int(selection.ended_parents[index, rank])
            tokens = self.history_BWC[index, parent, : int(self.length_B[index])].tolist()
            self.requests[index].finish(parent, tokens, float(selection.ended_scores[index, rank]), len(tokens) + 1)

    def _append(self, selection: Selection) -> None:
        capacity = self.history_BWC.shape[2]
        if int(self.length_B.max()) >= capacity:
            self.history_BWC = _grow(self.history_BWC, 2 * capacity)
        if self.width > 1:
            parent_BWC = selection.parents[:, :, None].expand(-1, -1, self.history_BWC.shape[2])
            self.history_BWC = self.history_BWC.gather(1, parent_BWC)
        self.history_BWC[torch.arange(len(self.requests), device=self.device), :, self.length_B] = selection.tokens
        self.length_B = self.length_B + 1
        self.last_BW, self.score_BW = selection.tokens, selection.scores

    def _apply_stop_strings(self) -> dict[int, Exception]:
        """Finish the beams that reached a stop string, without an end token; return the requests that failed."""
        errors: dict[int, Exception] = {}
        for index, active in enumerate(self.requests):
            should_stop = active.request.should_stop
            if should_stop is None:
                continue
            try:
                for beam, score in enumerate(self.score_BW[index].tolist()):
                    tokens = self.history_BWC[index, beam, : int(self.length_B[index])].tolist()
                    if score > -float("inf") and should_stop(tokens):
                        whole = active.progress[beam].is_whole  # one that lacks a phrase ranks below all that have it
                        active.finish(beam, tokens, score, len(tokens), ended=whole)
                        self.score_BW[index, beam] = -torch.inf
            except BaseException as error:  # the caller's function failed: its request fails, and no other
                errors[index] = as_exception(error)
        return errors

    def _done(self, errors: dict[int, Exception]) -> list[bool]:
        """Whether each request is done; those that cannot have any hypothesis are added to the errors."""
        lengths, scores = self.length_B.tolist(), self.score_BW.tolist()  # one transfer from the device for all
        done = []
        for index, (active, length, own) in enumerate(zip(self.requests, lengths, scores, strict=True)):
            is_done = index in errors or active.is_over(max(own), length)
            if not is_done:
                try:
                    is_done = self._has_run_out(index, length, own)
                except TransduceError as error:
                    errors[index], is_done = error, True
            if is_done and active.request.trace:
                active.trace.append(trace_stop(own, length))
            done.append(is_done)
        return done

    def _has_run_out(self, index: int, length: int, scores: list[float]) -> bool:
        """Whether no beam is alive, or the maximum length is reached; unfinished beams then fill up the n-best list."""
        active = self.requests[index]
        alive = [(beam, score) for beam, score in enumerate(scores) if score > -float("inf")]
        if alive and length < active.max_length:
            return False
        if not alive and not active.hypotheses:
            raise TransduceError(
                "no hypothesis satisfies min_length, no_repeat_ngram_size and the forbidden words together; relax one "
                "of them"
                if active.processors
                else "the model's scores are not finite, so no token is better than another; train it again, with a "
                "lower training.learning_rate or with training.max_grad_norm"
            )
        whole = [(beam, score) for beam, score in alive if active.progress[beam].is_whole]
        for beam, score in (whole or alive) if len(active.hypotheses) < active.options.n_best else ():
            active.finish(beam, self.history_BWC[index, beam, :length].tolist(), score, length, ended=False)
        return True

    def _keep(self, kept: list[int], parents: Tensor) -> None:
        """Keep some requests; of each, the beams that were continued."""
        if not kept:
            self.requests = []  # the search drops an empty group
            return
        assert self.state is not None
        if self.width == 1 and len(kept) == len(self.requests) == self._sentences:  # nothing to copy or to move
            self._steps_alone += 1
            return
        index_B = torch.tensor(kept, device=self.device)
        places = [self._places[index] for index in kept]
        if len(kept) < len(self.requests):
            idle = sorted(set(range(self._sentences)) - set(places))  # those that were idle have advanced meanwhile
            self.state.release(torch.tensor(idle, device=self.device))
            self._places = places
            self.requests = [self.requests[index] for index in kept]
            self.last_BW, self.score_BW = self.last_BW[index_B], self.score_BW[index_B]
            self.length_B, self.history_BWC = self.length_B[index_B], self.history_BWC[index_B]
            if self.shortlist is not None:
                self.shortlist.keep(index_B, self.requests)
        self._idle_rows += self._idle
        self._steps_alone += 1
        limit = MAX_IDLE_STEPS * self._idle
        if self._steps_alone > MAX_IDLE_STEPS or 4 * self._idle > len(kept):
            limit = min(len(kept) // 2, limit)
        self._select_rows(parents[index_B], compact=self._idle > 0 and self._idle_rows >= limit)

    def _select_rows(self, parent_BW: Tensor, compact: bool) -> None:
        """Select the rows of the state that continue; idle places keep theirs, unless the state is copied."""
        place_B = torch.tensor(self._places, device=self.device)
        row_BW = place_B[:, None] * self.width + parent_BW
        if compact:
            self._places, self._idle_rows = list(range(len(self._places))), 0
            row_R = row_BW.flatten()
        else:
            row_SW = torch.arange(self._sentences * self.width, device=self.device).view(-1, self.width)
            if self.width == 1 or torch.equal(row_BW, row_SW[place_B]):
                return
            row_SW[place_B] = row_BW
            row_R = row_SW.flatten()
        assert self.state is not None
        self.state = self.state.select(row_R)

    def _take_places(self, state: State) -> None:
        """Put new sentences in the places of finished ones, and the others after all."""
        count = state.num_rows // self.width
        if self.state is None:
            self.state, self._places = state, list(range(count))
            return
        self._steps_alone = 0
        idle = sorted(set(range(self._sentences)) - set(self._places))
        self._idle_rows = 0 if len(idle) <= count else self._idle_rows
        idle = idle[:count]
        if idle:
            first = torch.arange(len(idle), device=self.device)
            part = state if len(idle) == count else state.select(rows_of(first, self.width))
            self.state = self.state.put(torch.tensor(idle, device=self.device), part)
        if len(idle) < count:
            rest = torch.arange(len(idle), count, device=self.device)
            idle += range(self._sentences, self._sentences + len(rest))
            self.state = self.state.join(state.select(rows_of(rest, self.width)) if len(rest) < count else state)
        self._places += idle

    @property
    def _sentences(self) -> int:
        assert self.state is not None
        return self.state.num_rows // self.width

    @property
    def _in_order(self) -> bool:
        """Whether the sentences of the state are the requests, one by one."""
        return self._places == list(range(self._sentences))

    @property
    def _idle(self) -> int:
        """Number of places that no request has."""
        return self._sentences - len(self._places)


def _grow(tokens: Tensor, capacity: int) -> Tensor:
    """Pad to a larger capacity.  (… C) -> (… capacity)."""
    return torch.nn.functional.pad(tokens, (0, capacity - tokens.shape[-1]))


# Prefixes.


@dataclass(frozen=True)
class Prefix:
    """What the hypotheses of some requests must begin with, often nothing; the decoder reads it in one pass."""

    tokens: Tensor
    """(B P), padded with zeros."""
    lengths: Tensor
    """(B)"""
    last: Tensor
    """(B), what the next step reads: the last token of the prefix, or the first token."""
    first: Tensor
    """(B), the token before the prefix: the start token, or a request's own."""
    scored: Tensor
    """(B), whether the prefix is scored; a prompt is not."""

    @classmethod
    def of(cls, requests: Sequence[Request], specials: Specials, device: torch.device) -> Prefix:
        """Pad the prefixes of requests."""
        prefixes = [request.prefix for request in requests]
        longest = max(map(len, prefixes), default=0)
        rows = [[*prefix, *[0] * (longest - len(prefix))] for prefix in prefixes]
        firsts = [specials.start if request.first is None else request.first for request in requests]
        last = [prefix[-1] if prefix else first for prefix, first in zip(prefixes, firsts, strict=True)]
        return cls(
            tokens=torch.tensor(rows, dtype=torch.long, device=device).view(len(prefixes), longest),
            lengths=torch.tensor([len(prefix) for prefix in prefixes], dtype=torch.long, device=device),
            last=torch.tensor(last, dtype=torch.long, device=device),
            first=torch.tensor(firsts, dtype=torch.long, device=device),
            scored=torch.tensor([request.first is None for request in requests], device=device),
        )

    def read(self, model: AnyTransducer, state: State) -> tuple[State, Tensor]:
        """Extend a new state by all but the last token; return it with the prefixes' log-probabilities.  -> (B)."""
        longest = self.tokens.shape[1]
        if not longest:
            return state, torch.zeros(len(self.tokens), device=self.tokens.device)
        input_BP = torch.cat([self.first[:, None], self.tokens[:, :-1]], dim=1)
        input_RP, length_R = (part.repeat_interleave(state.width, dim=0) for part in (input_BP, self.lengths))
        hidden_RPD, state = model.extend(input_RP, length_R, state)
        if not bool(self.scored.any()):
            return state, torch.zeros(len(self.tokens), device=self.tokens.device)
        hidden_BPD = hidden_RPD[:: state.width]
        score_BP = torch.cat(  # one position at a time: all at once would need memory for P times the vocabulary
            [
                model.logits(hidden_BPD[:, place]).float().log_softmax(dim=-1).gather(1, self.tokens[:, place, None])
                for place in range(longest)
            ],
            dim=1,
        )
        real_BP = torch.arange(longest, device=self.tokens.device) < (self.lengths * self.scored)[:, None]
        return state, score_BP.where(real_BP, 0.0).sum(dim=1)


# Shortlists.


class ShortlistScorer:
    """Scores the union of the shortlists of some requests, with the rows of the output layer for it.

    Each request chooses from its own shortlist: it gets the hypotheses of a model that gives all other tokens no
    probability, whatever else is in the batch.
    """

    tokens: Tensor
    """(U), sorted: the token of each column."""
    specials: Specials
    """The columns of the special tokens, which are in every union."""

    def __init__(self, model: AnyTransducer, specials: Specials, width: int) -> None:
        self._model, self._specials, self._width = model, specials, width
        self._device = model.output.weight.device
        self._allowed_RU = torch.empty(0, 0, dtype=torch.bool)
        self._scorer: Scorer | None = None
        self._gathered = 0
        """Number of requests that the union was made for."""

    def gather(self, requests: Sequence[ActiveRequest]) -> None:
        """Make the union for these requests."""
        lists = [np.asarray(active.request.shortlist, dtype=np.int64) for active in requests]
        lists = [np.append(tokens, self._specials.end) for tokens in lists]
        union_U, column = np.unique(np.concatenate([*lists, np.array(self._specials)]), return_inverse=True)
        row = np.repeat(np.arange(len(lists)), [len(tokens) for tokens in lists])
        allowed_BU = np.zeros((len(lists), len(union_U)), dtype=np.bool_)
        allowed_BU[row, column[: len(row)]] = True
        self.specials = Specials(*column[len(row) :].tolist())
        self.tokens = torch.from_numpy(union_U).to(self._device)
        self._allowed_RU = torch.from_numpy(allowed_BU).to(self._device).repeat_interleave(self._width, dim=0)
        self._scorer, self._gathered = self._model.scorer(self.tokens), len(requests)

    def keep(self, index: Tensor, requests: Sequence[ActiveRequest]) -> None:
        """Keep these requests only; the union is made anew when half of them are gone.  (B)."""
        if 2 * len(requests) <= self._gathered:
            self.gather(requests)
        else:
            allowed_BWU = self._allowed_RU.view(-1, self._width, len(self.tokens))
            self._allowed_RU = allowed_BWU[index].flatten(0, 1)

    def score(self, hidden: Tensor) -> Tensor:
        """Score the union, with minus infinity for what is not in a row's own list.  (R D) -> (R U)."""
        assert self._scorer is not None
        return self._scorer(hidden, self._allowed_RU)

    def spread(self, scores: Tensor) -> Tensor:
        """Put scores of the union at the places of their tokens in the vocabulary.  (W U) -> (W V)."""
        whole_WV = torch.full((len(scores), self._model.sizes.target), -torch.inf, device=self._device)
        whole_WV[:, self.tokens] = scores
        return whole_WV
