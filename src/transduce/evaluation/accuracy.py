"""Right or wrong: exact match, and the error rates of pronunciation-like tasks.

A word may have several right pronunciations; any of them counts. The rules, since others differ:

- *exact match*: the text equals a reference, spaces at its ends aside.
- *word error rate*: the share of lines whose symbols are not those of any reference. This is what the
  grapheme-to-phoneme literature calls so, where one line is one word. (Speech recognition means another thing:
  edits over the words of a sentence; that is `phoneme_error_rate` with words as symbols.)
- *phoneme error rate*: edits to the nearest reference over whitespace-separated symbols, summed over the corpus,
  divided by the summed lengths of those references. Nearest is the fewest edits; among equals the longest
  reference, so that the order in which references are listed does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from transduce.evaluation.metric import Rate


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the fewest insertions, deletions and substitutions that make one sequence the other (Levenshtein)."""
    if len(one) < len(other):
        one, other = other, one
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(other, start=1):
            kept = diagonal if left == right else diagonal + 1
            diagonal = row[j]
            row[j] = min(kept, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def _count_match(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    return int(hypothesis.strip() in {reference.strip() for reference in references}), 1


def _count_wrong(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    symbols = hypothesis.split()
    return int(all(reference.split() != symbols for reference in references)), 1


def _count_edits(hypothesis: str, references: Sequence[str]) -> tuple[int, int]:
    symbols = hypothesis.split()
    answers = [reference.split() for reference in references]
    edits, shortfall = min((edit_distance(symbols, answer), -len(answer)) for answer in answers)
    return edits, -shortfall


EXACT_MATCH = Rate("exact_match", _count_match, "text-equals-any", higher_is_better=True)
WORD_ERROR_RATE = Rate("word_error_rate", _count_wrong, "line-equals-none")
PHONEME_ERROR_RATE = Rate("phoneme_error_rate", _count_edits, "edits-to-nearest")
