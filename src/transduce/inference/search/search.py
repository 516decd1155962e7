"""Search as a stepper: `admit` requests at any time, `advance` by one token, `drop` those that are cancelled.

Requests that are searched alike form a batch group and are stepped together, each at its own position; later arrivals
join their group. Translating a file loops over `advance`; a server feeds a search while it runs (`serving.scheduler`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from transduce.errors import as_exception
from transduce.inference.alignment import observed_twin
from transduce.inference.padding import source_batch
from transduce.inference.search.active_request import ActiveRequest, with_seed
from transduce.inference.search.batch_group import BatchGroup
from transduce.inference.search.options import Request, Result
from transduce.inference.search.penalty import coverage
from transduce.inference.search.strategy import SearchKey, search_key
from transduce.models.interface import AnyTransducer
from transduce.text.tokenizer.special import Specials

MAX_PADDING = 0.15
"""Largest share of padding in one encoder micro-batch …"""
FEW_TOKENS = 128
"""… unless it has so few tokens that another call would cost as much."""


class Search:
    """The stepper over one model, driven by its caller.

    A request that fails becomes a result with an error. A step that fails has consumed its state: the requests of its
    groups are restarted, in ever smaller groups, until the one that fails is alone.
    """

    def __init__(self, model: AnyTransducer, source: Specials, target: Specials) -> None:
        self.model, self.source, self.target = model, source, target
        self.groups: list[BatchGroup] = []
        self._failed: list[Result] = []
        """Requests that failed when they were admitted; the next `advance` returns them."""

    @cached_property
    def _observed(self) -> AnyTransducer:
        """A twin of the model for recording attention, made for the first request with a coverage penalty."""
        return observed_twin(self.model)

    @property
    def active(self) -> int:
        """Number of requests whose results are still to come."""
        return sum(len(group.requests) for group in self.groups) + len(self._failed)

    def admit(self, requests: Sequence[Request]) -> None:
        """Encode the sources and start the requests."""
        by_key: dict[SearchKey, list[Request]] = {}
        for request in map(with_seed, requests):  # a restart must draw the same samples: some may have been streamed
            by_key.setdefault(search_key(request), []).append(request)
        with torch.inference_mode():
            for key, alike in by_key.items():
                self._start(key, alike)

    def advance(self) -> list[Result]:
        """Write one more token in every beam; return what is finished."""
        results, self._failed = self._failed, []
        groups, self.groups = self.groups, []
        together = [group for group in groups if not group.isolated]
        with torch.inference_mode():
            for several in [*([together] if together else []), *([group] for group in groups if group.isolated)]:
                results += self._step(several)
        return results

    def agreed(self) -> dict[int, list[int]]:
        """The tokens that each active request's hypotheses have in common: they will not change."""
        return {
            active.request.id: group.agreed(index)
            for group in self.groups
            for index, active in enumerate(group.requests)
        }

    def drop(self, ids: Iterable[int]) -> None:
        """Remove these requests at once."""
        dropped = set(ids)
        with torch.inference_mode():
            for group in self.groups:
                group.drop(dropped)
        self.groups = [group for group in self.groups if group.requests]
        self._failed = [result for result in self._failed if result.id not in dropped]

    def _start(self, key: SearchKey, requests: Sequence[Request], isolated: bool = False) -> None:
        """Add requests that have one key to their group, or isolate them in a new one."""
        device, limit = self.model.output.weight.device, self.model.max_target
        alike = [] if isolated else [group for group in self.groups if group.key == key and not group.isolated]
        group = alike[0] if alike else BatchGroup(self.model, self.target, key, isolated)
        for batch in _micro_batches(requests):
            before = [active.request for active in group.requests]
            try:
                tokens_BS, allowed_BS = source_batch([request.source for request in batch], self.source, device)
                state = self.model.start(self.model.encode(tokens_BS, allowed_BS), key.width)
                group.add([ActiveRequest.of(request, self.target, limit) for request in batch], state)
            except BaseException as caught:
                error = as_exception(caught)
                if len(group.requests) == len(before):
                    self._restart(key, batch, error)
                    continue
                # The group's own state was changed half-way: everything in it starts again.
                self.groups = [other for other in self.groups if other is not group]
                self._restart(key, [*before, *batch], error)
                group = BatchGroup(self.model, self.target, key, isolated)
        if group.requests and group not in self.groups:
            self.groups.append(group)

    def _step(self, groups: Sequence[BatchGroup]) -> list[Result]:
        """Step some groups; those with requests left go back to `self.groups`."""
        try:
            stepped = self.model.step_groups([group.next_tokens for group in groups], [group.state for group in groups])
        except BaseException as caught:
            error = as_exception(caught)
            for group in groups:
                requests = [active.request for active in group.requests]
                if len(groups) > 1:  # any of them may have failed
                    self._start(group.key, requests, isolated=True)
                else:
                    self._restart(group.key, requests, error)
            return []
        results: list[Result] = []
        for group, (hidden_RD, state) in zip(groups, stepped, strict=True):
            try:
                results += [self._result(active, error) for active, error in group.advance(hidden_RD, state)]
            except BaseException as caught:
                error = as_exception(caught)
                self._restart(group.key, [active.request for active in group.requests], error)
                continue
            if group.requests:
                self.groups.append(group)
        return results

    def _restart(self, key: SearchKey, requests: Sequence[Request], error: Exception) -> None:
        """Restart the requests of a group that failed in two halves; a request that was alone has failed itself."""
        if len(requests) == 1:
            self._failed.append(Result(requests[0].id, [], error))
            return
        middle = len(requests) // 2
        for half in (requests[:middle], requests[middle:]):
            self._start(key, half, isolated=True)

    def _result(self, active: ActiveRequest, error: Exception | None) -> Result:
        """Return the result of a request that is done; a coverage penalty reorders its hypotheses."""
        strength = active.options.coverage_penalty
        if strength and error is None:
            written = [hypothesis.tokens for hypothesis in active.hypotheses]
            try:
                found = iter(coverage(self._observed, active.request.source, written, self.source, self.target))
            except BaseException as caught:
                failure = as_exception(caught)
                return active.result(failure)
            active.finished = [
                [replace(one, score=one.score + strength * next(found)) for one in group] for group in active.finished
            ]
        return active.result(error)


def _micro_batches(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Yield requests of similar length, which are encoded together with little padding."""
    group: list[Request] = []
    for request in sorted(requests, key=lambda request: len(request.source)):
        longest = len(request.source) + 1
        padding = sum(longest - 1 - len(other.source) for other in group)
        if padding > MAX_PADDING * longest * len(group) and longest * len(group) > FEW_TOKENS:
            yield group
            group = []
        group.append(request)
    if group:
        yield group
