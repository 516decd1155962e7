"""Counts of what is read, used and left out, and why, while a corpus is prepared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from transduce.data.report import MAX_EXAMPLES, MAX_SHOWN, REASONS, CorpusReport, Example, Finding
from transduce.text.corpus import Pair


@dataclass
class _Count:
    kept: int = 0
    dropped: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass
class Tally:
    """Counts of one corpus, or of its part that goes to one split."""

    corpus: str | None = None
    """Its name, when it is one of several."""
    weight: float = 1.0
    read: int = 0
    kept: int = 0
    held_out: int = 0
    _counts: dict[str, _Count] = field(default_factory=dict)

    def found(self, reason: str, examples: Sequence[Pair], dropped: int = 0, kept: int = 0) -> None:
        """Count a finding; the first few pairs become examples."""
        count = self._counts.setdefault(reason, _Count())
        count.kept += kept
        count.dropped += dropped
        for pair in examples[: MAX_EXAMPLES - len(count.examples)]:
            example = Example(line=pair.line, source=_cut(pair.source), target=_cut(pair.target), corpus=self.corpus)
            count.examples.append(example)

    def findings(self) -> dict[str, Finding]:
        """Return what was found, in the order of `REASONS`."""
        found = {reason: self._counts[reason] for reason in REASONS if reason in self._counts}
        return {
            reason: Finding(kept=count.kept, dropped=count.dropped, examples=tuple(count.examples))
            for reason, count in found.items()
        }

    def report(self) -> CorpusReport:
        """Return the counts of a corpus that is one of several."""
        dropped = {reason: finding.dropped for reason, finding in self.findings().items() if finding.dropped}
        return CorpusReport(
            name=self.corpus or "",
            weight=self.weight,
            read=self.read,
            kept=self.kept,
            held_out=self.held_out,
            dropped=dropped,
        )

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum, with the first examples."""
        sum_ = cls()
        for tally in tallies:
            sum_.read += tally.read
            sum_.kept += tally.kept
            sum_.held_out += tally.held_out
            for reason, count in tally._counts.items():
                all_ = sum_._counts.setdefault(reason, _Count())
                all_.kept += count.kept
                all_.dropped += count.dropped
                all_.examples = (all_.examples + count.examples)[:MAX_EXAMPLES]
        return sum_


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
