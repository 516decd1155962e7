"""Memory of the process: keep freed memory, measure what is held, detect out-of-memory errors.

glibc returns large blocks to the system at every free and requests fresh, zeroed pages the next time; in training these
are the same blocks at every update, and a quarter of the time. All threads share one heap: the arenas that glibc gives
to other threads are too small for our blocks.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import torch

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_LARGE = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory for reuse; return whether there is a glibc."""
    mallopt = _glibc("mallopt")
    if mallopt is None:
        return False
    wanted = {_MMAP_MAX: 0, _TRIM_THRESHOLD: _LARGE, _TOP_PAD: 2**26, _ARENA_MAX: 1}
    return all(mallopt(option, value) for option, value in wanted.items())


def give_back_freed_memory() -> None:
    """Return freed memory to the system, so that only memory in use is held."""
    malloc_trim = _glibc("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)


def _glibc(name: str) -> Any:
    """Return a function of glibc; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None


_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or its peak (macOS), or 0 (Windows)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        if sys.platform == "win32":
            return 0
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def physical_bytes() -> int:
    """Return the memory of this machine in bytes; 0 where the system does not report it (Windows)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


class SharedShortage(MemoryError):
    """One of several ranks ran out of memory, and all ranks know."""


def ran_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out."""
    message = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and ("can't allocate memory" in message or "out of memory" in message)
    )
