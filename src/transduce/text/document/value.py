"""A value with line breaks, as in a cell: each line is a text; white space around lines is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from transduce.text.lines import normalise

_PARTS = re.compile(r"([^\r\n]*)(\r\n|[\r\n]|\Z)")


class ValueText:
    """The lines of a value."""

    def __init__(self, value: str, where: str) -> None:
        self._lines = [(found.group(1), found.group(2)) for found in _PARTS.finditer(value)]
        if len(self._lines) > 1 and self._lines[-1] == ("", ""):  # the end is found once more
            self._lines.pop()
        self.texts = [normalise(line.strip(), where) for line, _ in self._lines if line.strip()]

    def write(self, translations: Sequence[str]) -> str:
        """Return the value with translations."""
        rest = iter(translations)
        return "".join(_replaced(line, rest) + end for line, end in self._lines)


def _replaced(line: str, rest: Iterable[str]) -> str:
    text = line.strip()
    if not text:
        return line
    begin = len(line) - len(line.lstrip())
    return line[:begin] + next(iter(rest)) + line[begin + len(text) :]


def paired_lines(source: str, target: str) -> list[tuple[str, str]]:
    """Return the pairs of lines of two values, or one pair with spaces for line breaks if their numbers differ."""
    sources, targets = ([line.strip() for line in re.split(r"[\r\n]+", side.strip())] for side in (source, target))
    if len(sources) == len(targets):
        return list(zip(sources, targets, strict=True))
    return [(" ".join(sources), " ".join(targets))]
