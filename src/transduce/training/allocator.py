"""Keep memory that was used once. Linux's glibc gives large blocks back to the system at every free and asks for
fresh, zeroed pages the next time; in training that is the same blocks at every update, and a quarter of the time.
All threads share one heap: those that glibc gives to further threads are too small for our blocks.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_LARGE = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next use; return whether there was a glibc to tell."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = {_MMAP_MAX: 0, _TRIM_THRESHOLD: _LARGE, _TOP_PAD: 2**26, _ARENA_MAX: 1}
    return all(mallopt(option, value) for option, value in wanted.items())
