"""Every exception a person can meet, and the exit code each one ends the program with.

    TransduceError                 1   a check failed
    ├── SettingsError              2   a setting or option that makes no sense
    ├── DataError                 65   text that cannot be read as what it should be
    ├── ModelFolderError          65   a run or model folder that is damaged, foreign or incomplete
    ├── MissingInput              66   a file or folder that is not there or cannot be read
    ├── CannotCreate              73   an output that cannot be created
    ├── StorageError              74   writing failed half-way (disk full, quota)
    └── Busy                      75   somebody else is using it; try again

A message is one sentence: what is wrong, where, and what to do about it. Assertions are for us;
these are for the person at the keyboard.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 80


class TransduceError(Exception):
    """The root: anything that the command line prints as one sentence."""

    exit_code = 1
    label = "error: "
    """Printed before the message; empty for a clean stop."""
    reported = False
    """Whether another process has printed it already."""


class SettingsError(TransduceError):
    """A setting, option or combination of them that makes no sense."""

    exit_code = 2


class DataError(TransduceError):
    """Text or a corpus that cannot be read as what it should be."""

    exit_code = 65


class ModelFolderError(TransduceError):
    """A run or model folder that is damaged, foreign or incomplete."""

    exit_code = 65


class MissingInput(TransduceError):
    """An input that does not exist or may not be read."""

    exit_code = 66


class CannotCreate(TransduceError):
    """An output that may not be created where it was asked for."""

    exit_code = 73


class StorageError(TransduceError):
    """Writing failed half-way: disk full, quota, a device that went away."""

    exit_code = 74


class Busy(TransduceError):
    """Another process holds what was asked for."""

    exit_code = 75


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known word, or the known words when none is near."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; there is {', '.join(known)}" if known else ""


def one_line(error: BaseException) -> str:
    """Return what a library said on one line, not too long to repeat; its name where it said nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def brief(value: object) -> str:
    """Return any value on one short line, quoted: for what a stranger wrote and a message repeats."""
    return _BRIEF.repr(value)
