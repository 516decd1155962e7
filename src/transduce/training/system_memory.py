"""Keep memory that was used once, until it is asked back.

Linux's glibc gives large blocks back to the system at every free and asks for fresh, zeroed pages the next time; in
training that is the same blocks at every update, and a quarter of the time. All threads share one heap: those that
glibc gives to further threads are too small for our blocks.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

import torch

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


# How much memory this process holds right now.

_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the bytes of this process that are in memory; where the system does not say, the most there ever were."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


# Memory that the system refused, to this process or to one that trains with it.


class SharedShortage(MemoryError):
    """One of several ranks ran out of memory, and all of them know."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether the system refused memory, in any of the ways that it says so."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in said or "out of memory" in said)
    )
