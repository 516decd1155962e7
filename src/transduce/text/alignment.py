"""Word alignments in Pharaoh format: `0-0 1-2`, source word first, counted from 0.

Words are separated by white space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from transduce.errors import DataError, brief
from transduce.text.lines import read_lines, shown

Links = list[tuple[int, int]]
"""(source word, target word), both from 0."""

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as other tools read them: `0-0 2-1`, source first, in the order of the source."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


class AlignmentFile:
    """The alignments of a corpus, read line by line with its pairs."""

    def __init__(self, path: str) -> None:
        self._name = shown(path)
        self._lines = read_lines(path)

    def links(self, source: str, target: str, number: int) -> Links:
        """Read the next line, which must be the alignment of the pair with this number."""
        line = next(self._lines, None)
        if line is None:
            raise DataError(f"{self._name}: has {number - 1:,} lines, fewer than there are pairs; {_REMEDY}")
        return read_links(line, source, target, f"{self._name}:{number}")

    def finish(self) -> None:
        """Raise an error if there are more lines than pairs."""
        if next(self._lines, None) is not None:
            raise DataError(f"{self._name}: has more lines than there are pairs; {_REMEDY}")


_REMEDY = "an alignment has one line for each pair, so align these very files"


def read_links(line: str, source: str, target: str, where: str) -> Links:
    """Read the alignment of a pair; `where` names file and line in errors."""
    sizes, links = (len(source.split()), len(target.split())), Links()
    for text in line.split():
        found = _LINK.fullmatch(text)
        if found is None:
            raise DataError(
                f"{where}: {brief(text)} is not a link between words; give links as in Pharaoh format, 0-0 1-2: "
                "source word, target word, both counted from 0"
            )
        link = int(found[1]), int(found[2])
        for side, word, size in zip(("source", "target"), link, sizes, strict=True):
            if word >= size:
                raise DataError(
                    f"{where}: {text} links {side} word {word}, but the {side} has {size} words, counted from 0 and "
                    "separated by white space; align these very lines again, and write the source first"
                )
        links.append(link)
    return sorted(set(links))


def token_links(
    links: Sequence[tuple[int, int]], source: Sequence[int | None], target: Sequence[int | None]
) -> list[tuple[int, int]]:
    """Link every token of linked words: (target token, source token), sorted.

    `source` and `target` have the word of each token; None is a token outside of words.
    """
    source_tokens, target_tokens = _tokens_of_words(source), _tokens_of_words(target)
    return sorted(
        (token, other)
        for source_word, target_word in links
        for token in target_tokens.get(target_word, ())
        for other in source_tokens.get(source_word, ())
    )


def _tokens_of_words(words: Sequence[int | None]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for token, word in enumerate(words):
        if word is not None:
            found.setdefault(word, []).append(token)
    return found
