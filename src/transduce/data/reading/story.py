"""Stories with questions: files as bAbI's (Weston et al. 2015, arXiv 1502.05698).

A line is a number and a fact, or a number, a question, a tab, its answer, and what else there may be. Number 1 begins a
story, and numbers rise within it. That is all that bAbI's description asks, so a story may have lost lines and kept its
numbers (1, 2, 4), by which supporting facts are named. A question is about the facts before it in its story.
"""

from __future__ import annotations

from collections.abc import Iterator

from transduce.config import counted

Asked = tuple[int, tuple[str, ...], str]
"""The line of a question, the facts before it with the question itself as the last, and the answer."""


def plain(sentence: str) -> str:
    """Leave out the mark at the end of a sentence, so that its last word is a word."""
    return sentence.strip().rstrip(".?!").rstrip()


def read_stories(lines: Iterator[str]) -> Iterator[Asked | int]:
    """Yield every question; of a line that is neither fact nor question, or out of order in its story, its number."""
    facts: list[str] = []
    last: int | None = None
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        first, _, rest = line.strip().partition(" ")
        number = counted(first)
        if number is None or not plain(rest.partition("\t")[0]):
            yield place
            continue
        if number == 1:
            facts, last = [], 0
        if last is None or number <= last:  # no beginning, or mixed up: whose facts these are is not known
            last = None
            yield place
            continue
        last = number
        question, *told = rest.split("\t")
        if not told:
            facts.append(plain(question))
        elif told[0].strip():
            yield place, (*facts, plain(question)), told[0].strip()
        else:
            yield place
