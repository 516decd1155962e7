"""A request that fails is a result with an error, and does not change what the others get."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.unit.inference.search.toy import SPECIALS, Toy, ToyMemory, ToyState, random_table, translate
from transduce.inference.search.options import Request, Result, SearchOptions
from transduce.inference.search.search import Search

OPTIONS = SearchOptions(beam_size=3, n_best=2, max_length=7)
SOURCES: list[tuple[int, ...]] = [(4, 1, 5), (1,), (5, 5, 4, 1), (4,), (1, 4)]
BAD = (5, 1, 5)


class Fragile(Toy):
    """Fails where it encodes one source, or after it has read some tokens for it."""

    def __init__(self, seed: int, steps: int | None) -> None:
        super().__init__(random_table(seed))
        self.allowed_steps = steps

    def encode(self, source: Tensor, allowed: Tensor) -> ToyMemory:
        memory = super().encode(source, allowed)
        if self.allowed_steps is None and any(read[:-1] == BAD for read in memory.sources):
            raise RuntimeError("encode failed")
        return memory

    def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        written = [len(prefix) for read, prefix in zip(state.sources, state.prefixes, strict=True) if read[:-1] == BAD]
        if self.allowed_steps is not None and written and max(written) >= self.allowed_steps:
            raise RuntimeError("step failed")
        return super().step(tokens, state)


def results_of(search: Search) -> dict[int, Result]:
    found: dict[int, Result] = {}
    for _ in range(200):
        if not search.active:
            return found
        found |= {result.id: result for result in search.advance()}
    raise AssertionError("the search does not end")


def requests_of(sources: Sequence[tuple[int, ...]]) -> list[Request]:
    return [Request(number, source, OPTIONS) for number, source in enumerate(sources)]


@pytest.mark.parametrize("steps", [None, 0, 2])
def test_only_the_request_that_fails_has_an_error(steps: int | None) -> None:
    search = Search(Fragile(3, steps), SPECIALS, SPECIALS)
    requests = requests_of([*SOURCES[:2], BAD, *SOURCES[2:]])
    search.admit(requests[:4])
    found = {result.id: result for result in search.advance()}
    search.admit(requests[4:])
    found |= results_of(search)
    assert found.keys() == set(range(len(requests)))
    for request in requests:
        result = found[request.id]
        if request.source == BAD:
            assert isinstance(result.error, RuntimeError)
            assert result.hypotheses == []
            with pytest.raises(RuntimeError, match="failed"):
                result.checked()
        else:
            assert result.error is None
            assert result.hypotheses == translate(Toy(random_table(3)), request.source, **OPTIONS.model_dump())


def test_a_stop_function_that_fails_fails_its_own_request() -> None:
    def fail(tokens: Sequence[int]) -> bool:
        raise ValueError(f"cannot judge {len(tokens)} tokens")

    search = Search(Toy(random_table(5)), SPECIALS, SPECIALS)
    search.admit([Request(0, SOURCES[0], OPTIONS, should_stop=fail), Request(1, SOURCES[0], OPTIONS)])
    found = results_of(search)
    assert isinstance(found[0].error, ValueError)
    assert found[1].hypotheses == translate(Toy(random_table(5)), SOURCES[0], **OPTIONS.model_dump())


def test_a_failed_request_can_be_dropped_before_it_is_returned() -> None:
    search = Search(Fragile(3, None), SPECIALS, SPECIALS)
    search.admit(requests_of([BAD]))
    assert search.active == 1
    search.drop([0])
    assert search.active == 0
    assert search.advance() == []


def test_later_arrivals_get_a_group_of_their_own() -> None:
    """Their state is not joined to that of the others, so no cache is copied."""

    class Unjoined(Toy):
        def start(self, memory: ToyMemory, width: int = 1) -> ToyState:
            state = super().start(memory, width)
            return NeverJoined(state.sources, state.prefixes, state.width)

    class NeverJoined(ToyState):
        def join(self, other: ToyState) -> ToyState:
            raise AssertionError("joined")

    search = Search(Unjoined(random_table(7)), SPECIALS, SPECIALS)
    for number, source in enumerate(SOURCES):
        search.admit([Request(number, source, OPTIONS)])
        search.advance()
    assert len(search.groups) > 1
    assert all(result.error is None for result in results_of(search).values())


def test_groups_may_be_stepped_at_once() -> None:
    """A model may override `step_groups`: one pass over the rows of all groups gives what the loop gives."""

    class Together(Toy):
        def step_groups(self, tokens: Sequence[Tensor], states: Sequence[ToyState]) -> list[tuple[Tensor, ToyState]]:
            sources = [source for state in states for source in state.sources]
            prefixes = [prefix for state in states for prefix in state.prefixes]
            hidden, joined = self.step(torch.cat(list(tokens)), ToyState(sources, prefixes, 1))
            found, start = [], 0
            for state in states:
                end = start + state.num_rows
                own = ToyState(state.sources, joined.prefixes[start:end], state.width)
                found.append((hidden[start:end], own))
                start = end
            return found

    for model in (Toy(random_table(9)), Together(random_table(9))):
        search = Search(model, SPECIALS, SPECIALS)
        found: dict[int, Result] = {}
        for request in requests_of(SOURCES):
            search.admit([request])
            found |= {result.id: result for result in search.advance()}
        found |= results_of(search)
        for request in requests_of(SOURCES):
            expected = translate(Toy(random_table(9)), request.source, **OPTIONS.model_dump())
            assert found[request.id].hypotheses == expected
