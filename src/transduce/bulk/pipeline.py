"""Several windows on their way at once, and out in the order in which they went in.

Reading ahead, answering and whatever is done with the answers overlap, so that engines do not wait. How much is on its
way is bounded at each place: memory does not depend on the length of the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterator[T], threads: int) -> Generator[R]:
    """Yield what `work` makes of each item, in order; so many are worked on at a time, one more waits, one is read.

    An error of reading comes after all that was read before it. Whoever stops early closes the generator: nobody waits
    then for what is being worked on.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="reading")
    workers = ThreadPoolExecutor(threads, thread_name_prefix="answering")
    begun: deque[Future[R]] = deque()
    failure: Exception | None = None
    coming: Future[T | None] | None = reader.submit(next, items, None)
    try:
        while coming is not None or begun:
            while coming is not None and len(begun) <= threads:
                try:
                    item = coming.result()
                except Exception as error:
                    failure, item = error, None
                coming = None if item is None else reader.submit(next, items, None)
                if item is not None:
                    begun.append(workers.submit(work, item))
            if begun:
                yield begun.popleft().result()
    finally:
        for pool in (reader, workers):
            pool.shutdown(wait=False, cancel_futures=True)
    if failure is not None:
        raise failure
