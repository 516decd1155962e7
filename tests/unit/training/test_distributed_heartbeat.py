"""Ranks that hear each other, with a store in this process and looks as fast as they go."""

from __future__ import annotations

import threading

import pytest
from torch.distributed import HashStore

from transduce.training import distributed as heartbeat
from transduce.training.distributed import MISSED_BEATS, Heartbeat, beating


def test_who_falls_silent_is_named_after_some_looks_and_not_before() -> None:
    store = HashStore()
    first, second, third = (Heartbeat(store, rank, 3) for rank in range(3))
    for _ in range(2 * MISSED_BEATS):
        assert [each.beat() for each in (first, second, third)] == [[], [], []]
    for _ in range(MISSED_BEATS):
        assert first.beat() == []
        second.beat()
    assert first.beat() == [2]
    third.beat()  # it was only slow
    assert first.beat() == []


def test_a_rank_that_has_not_joined_or_has_left_is_not_missed() -> None:
    store = HashStore()
    first, second = (Heartbeat(store, rank, 2) for rank in range(2))
    for _ in range(3 * MISSED_BEATS):
        assert first.beat() == []
    second.beat()
    second.end()
    for _ in range(3 * MISSED_BEATS):
        assert first.beat() == []


def test_the_process_is_ended_when_another_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)
    store, reported = HashStore(), threading.Event()
    lost: list[int] = []

    def give_up(ranks: list[int]) -> None:
        lost.extend(ranks)
        reported.set()

    Heartbeat(store, 1, 2).beat()
    with beating(Heartbeat(store, 0, 2), give_up):
        assert reported.wait(30)
    assert lost == [1]
    assert store.get("heartbeat/0") == b"done"


def test_a_store_that_has_gone_is_not_this_one_s_to_complain_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.001)

    class Gone(HashStore):
        def set(self, key: str, value: str) -> None:
            asked.set()
            raise RuntimeError(f"{key} = {value}: connection closed")

    asked = threading.Event()
    with beating(Heartbeat(Gone(), 0, 2)):
        assert asked.wait(30)
