"""The cache of recorded passes."""

from __future__ import annotations

from typing import Any

import pytest

from transduce.serving.http import RequestError
from transduce.serving.job import RecordJob
from transduce.serving.studio.passes import OVERHEAD, PassCache, ShareArray

PASS: dict[str, Any] = {
    "subject": "translation",
    "source_tokens": [3],
    "read_tokens": [1, 4],
    "produced_tokens": [4, 2],
}


def add(cache: PassCache, text: str = "a", **more: Any) -> str:
    return cache.add("model", RecordJob(text=text), {**PASS, **more}).id


def test_the_passes_used_least_recently_leave_first() -> None:
    cache = PassCache(4 * OVERHEAD)
    first, second, third = (add(cache) for _ in range(3))
    cache.find(first)
    fourth = add(cache)
    with pytest.raises(RequestError, match="is gone") as raised:
        cache.find(second)
    assert raised.value.status == 404
    assert all(cache.find(id) for id in (first, third, fourth))
    assert cache.bytes <= 4 * OVERHEAD


def test_arrays_count_and_are_dropped_before_their_own_pass() -> None:
    cache = PassCache(10 * OVERHEAD)
    other, own = add(cache), cache.find(add(cache))
    own.layers["cross", 1] = ShareArray((1,), bytes(8 * OVERHEAD))
    cache.measure(own)
    assert cache.bytes <= 10 * OVERHEAD and len(cache) == 1
    with pytest.raises(RequestError):
        cache.find(other)
    own.layers["cross", 2] = ShareArray((1,), bytes(8 * OVERHEAD))
    cache.measure(own)
    assert own.layers == {} and cache.find(own.id) is own
    assert cache.bytes == own.size


def test_a_thousand_passes_stay_within_the_bound() -> None:
    cache = PassCache(50 * OVERHEAD)
    for number in range(1000):
        add(cache, "x", output="y" * number)
        assert cache.bytes <= 50 * OVERHEAD
    assert cache.bytes == sum(cache.find(id).size for id in list(cache._passes))


def test_ids_cannot_be_guessed_and_a_sample_keeps_its_seed() -> None:
    cache = PassCache(1 << 20)
    ids = {add(cache) for _ in range(100)}
    assert len(ids) == 100 and min(map(len, ids)) >= 16
    kept = cache.find(add(cache, seed=7))
    assert kept.job.search == {"seed": 7}
    assert (kept.source_tokens, kept.target_tokens) == ([3], [1, 4, 2])
