"""The exceptions that users see, each with the exit code of the program.

    TransduceError                 1   a check failed
    ├── SettingsError              2   an invalid setting or option, or combination of them
    ├── DataError                 65   text or a corpus that is malformed
    ├── ModelFolderError          65   a run or model folder that is damaged, foreign or incomplete
    ├── MissingInput              66   a file or folder that does not exist or cannot be read
    ├── CannotCreate              73   an output that cannot be created
    ├── StorageError              74   writing failed half-way (disk full, quota)
    └── Busy                      75   another process is using it; try again

A message is one sentence: what is wrong, where, and what to do about it. Assertions are for developers, these are for
users.
"""

from __future__ import annotations

import difflib
import reprlib
import traceback
from collections.abc import Iterable
from pathlib import Path

MOST_SUGGESTIONS = 3
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 80


class TransduceError(Exception):
    """Any error without a code of its own. The base class: the command line prints its message without a traceback."""

    exit_code = 1
    label = "error: "
    """Printed before the message; empty for a clean stop."""
    reported = False
    """Whether another process has printed it already."""


class SettingsError(TransduceError):
    """An invalid setting or option, or combination of them."""

    exit_code = 2


class DataError(TransduceError):
    """Text or a corpus that is malformed."""

    exit_code = 65


class ModelFolderError(TransduceError):
    """A run or model folder that is damaged, foreign or incomplete."""

    exit_code = 65


class MissingInput(TransduceError):
    """An input that does not exist or cannot be read."""

    exit_code = 66


class CannotCreate(TransduceError):
    """An output that cannot be created at the given path."""

    exit_code = 73


class StorageError(TransduceError):
    """Writing failed half-way: disk full, quota, a device that went away."""

    exit_code = 74


class Busy(TransduceError):
    """Another process holds the lock."""

    exit_code = 75


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest known word, or list the known words if none is close.

    Known words of which it is a part, such as paper_base for base, are suggested too.
    """
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or [one for one in known if one == word.lower()]
    parts = [one for one in known if word in one.split("_")]
    if found := list(dict.fromkeys([*near, *parts]))[:MOST_SUGGESTIONS]:
        return f"; did you mean {' or '.join(map(repr, found))}?"
    return f"; choose from {', '.join(known)}" if known else ""


def one_line(error: BaseException) -> str:
    """Return a library's message on one line of at most 200 characters; the class name if it is empty."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def as_exception(error: BaseException) -> Exception:
    """Return what failed a piece of work as an ordinary exception; raises the signals that end the program.

    A panic of a library in Rust is a BaseException, and must not end more than the work that caused it.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {one_line(error)}")


def raised_at(error: BaseException) -> str:
    """Return where an error was raised, innermost call first, without its message: that may repeat a user's text."""
    calls = [*traceback.walk_tb(error.__traceback__)][-4:]
    places = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in reversed(calls)]
    return " < ".join(places) or "unknown place"


def brief(value: object) -> str:
    """Return any value on one short line, quoted: for user input that a message repeats."""
    return _BRIEF.repr(value)
