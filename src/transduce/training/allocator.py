"""Keep memory that was used once, until it is asked back.

Linux's glibc gives large blocks back to the system at every free and asks for fresh, zeroed pages the next time; in
training that is the same blocks at every update, and a quarter of the time. All threads share one heap: those that
glibc gives to further threads are too small for our blocks.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_LARGE = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next use; return whether there was a glibc to tell."""
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return False
    wanted = {_MMAP_MAX: 0, _TRIM_THRESHOLD: _LARGE, _TOP_PAD: 2**26, _ARENA_MAX: 1}
    return all(mallopt(option, value) for option, value in wanted.items())


def give_back_freed_memory() -> None:
    """Let the system have what is kept and not in use, so that what is held is what is needed."""
    malloc_trim = _glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _glibc(name: str) -> Any:
    """A function of glibc; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
