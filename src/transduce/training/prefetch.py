"""Batches prepared in a background thread, in the same order, for a GPU that must not wait for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

DEPTH = 8
"""Items that are ready at most; what they hold is small."""
ENDED = object()


def prefetched(items: Iterable[T], depth: int = DEPTH, begin: Callable[[], object] | None = None) -> Generator[T]:
    """Yield items as a thread produces them, at most `depth` ahead. An error is raised where the item would be.

    `begin` is called in that thread first. The thread ends with the items, or when this generator is closed.
    """
    room, ready, closed = threading.Semaphore(depth), queue.SimpleQueue[Any](), threading.Event()

    def produce() -> None:
        try:
            if begin is not None:
                begin()
            source = iter(items)
            while room.acquire() and not closed.is_set():
                ready.put((next(source, ENDED), None))
        except BaseException as error:  # raised by the consumer
            ready.put((ENDED, error))

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is ENDED:
                return
            room.release()
            yield item
    finally:
        closed.set()
        room.release()
        thread.join()
