"""Precision and recall of the detectors of `transduce clean` on corpora with planted faults: `make bench-clean`.

In each corpus 5 % of the lines are shifted (in blocks, whose targets move on by a line), 5 % have a target in another
language, 5 % are nearly equal to an earlier pair and 5 % have swapped sides. The same corpora without faults show how
many good pairs are removed; what their authors left in them counts as good here. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import require_files

from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.outcome import CleanPair
from transduce.data.cleaning.rules import CleaningConfig
from transduce.text.corpus import Pair

Pairs = list[tuple[str, str]]
SHARE = 0.05
FLORES = (
    ("en", "de"),
    ("en", "zh"),
    ("en", "th"),
    ("ja", "ko"),
    ("ar", "he"),
    ("en", "hi"),
    ("fi", "hu"),
    ("ru", "uk"),
)
DETECTS = {
    "shifted": {"misaligned", "realigned"},
    "language": {"language"},
    "near_duplicate": {"near_duplicate", "duplicate"},
    "swapped": {"swapped"},
}
"""What the detector of each planted fault reports."""


def lines(path: Path) -> list[str]:
    """Read a gzip file."""
    require_files(path.parent, path.name)
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def corpora(data: Path, most: int) -> dict[str, tuple[Pairs, tuple[str, str], list[str]]]:
    """Return pairs, languages and lines of a third language, by the name of the corpus."""
    rows = [line.split("\t")[:2] for line in lines(data / "tatoeba-eng-fra/eng-fra.tsv.gz")]
    random.Random(1).shuffle(rows)
    multi30k = [lines(data / "multi30k" / f"train.{side}.gz")[:most] for side in ("en", "de")]
    french = [row[1] for row in rows[-most:]]
    found = {
        "multi30k en-de": (list(zip(*multi30k, strict=True)), ("en", "de"), french),
        "tatoeba en-fr": ([(row[0], row[1]) for row in rows[:most]], ("en", "fr"), multi30k[1]),
    }
    for pair in FLORES:
        one, other = (lines(data / "flores200-devtest-multiscript" / f"flores200.devtest.{name}.gz") for name in pair)
        third = lines(data / "flores200-devtest-multiscript" / "flores200.devtest.pt.gz")
        found[f"flores {pair[0]}-{pair[1]}"] = (list(zip(one, other, strict=True)), pair, third)
    return found


def edited(text: str, draw: random.Random) -> str:
    """Return a text with a small change: a character left out or doubled, another case or end."""
    place = draw.randrange(len(text))
    kind = draw.randrange(4)
    if kind == 0:
        return text[:place] + text[place + 1 :]
    if kind == 1:
        return text[:place] + text[place] + text[place:]
    return text.upper() if kind == 2 else text.rstrip(".!?。") + " …"


def plant(pairs: Pairs, others: list[str], seed: int) -> tuple[Pairs, list[str]]:
    """Return the pairs with faults, and the fault of each."""
    draw = random.Random(seed)
    count = round(SHARE * len(pairs))
    found, faults = list(pairs), [""] * len(pairs)
    left = count
    while left > 1:
        size = min(left, draw.randint(3, 20))
        start = draw.randrange(len(pairs) - size)
        if any(faults[start : start + size]):
            continue
        block = [target for _, target in found[start : start + size]]
        for at in range(size):
            found[start + at] = (found[start + at][0], block[(at + 1) % size])
            faults[start + at] = "shifted"
        left -= size
    free = [at for at, fault in enumerate(faults) if not fault]
    draw.shuffle(free)
    for at in free[:count]:
        found[at], faults[at] = (found[at][0], others[draw.randrange(len(others))]), "language"
    for at in free[count : 2 * count]:
        found[at], faults[at] = (found[at][1], found[at][0]), "swapped"
    copied = draw.sample(free[2 * count :], count)
    for at in copied:
        source, target = found[at]
        found.append((edited(source, draw), target) if draw.random() < 0.5 else (source, edited(target, draw)))
        faults.append("near_duplicate")
    return found, faults


def clean(pairs: Pairs, languages: tuple[str, str]) -> tuple[list[str], float]:
    """Return what is reported of each pair, and the seconds that it took."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        cleaner = Cleaner(CleaningConfig(), Path(folder), languages)
        outcome = cleaner.clean(Pair(*pair, line) for line, pair in enumerate(pairs, start=1))
        found = [(one.repair or "") if isinstance(one, CleanPair) else one.reason for one in outcome.pairs()]
        for note in outcome.notes:
            print(f"    note: {note}")
    return found, time.perf_counter() - began


def scores(faults: list[str], found: list[str]) -> dict[str, dict[str, float]]:
    """Return precision and recall of each detector, and the recall of all detectors together."""
    table = {}
    for fault, names in DETECTS.items():
        planted = [report for report, one in zip(found, faults, strict=True) if one == fault]
        hits = sum(report in names for report in planted)
        reported = sum(report in names for report in found)
        table[fault] = {
            "precision": hits / max(1, reported),
            "recall": hits / max(1, len(planted)),
            "any": sum(bool(report) for report in planted) / max(1, len(planted)),
        }
    return table


def measure(name: str, pairs: Pairs, languages: tuple[str, str], others: list[str]) -> dict[str, Any]:
    """Clean a corpus without and with faults."""
    report, seconds = clean(pairs, languages)
    counts = {reason: report.count(reason) for reason in sorted(set(report)) if reason}
    touched = sum(counts.values()) / len(pairs)
    print(f"{name}: {len(pairs):,} pairs, {seconds:.1f} s; clean: {100 * touched:.2f} % reported {counts}", flush=True)
    planted, faults = plant(pairs, others, seed=len(pairs))
    found, _ = clean(planted, languages)
    table = scores(faults, found)
    for fault, row in table.items():
        print(f"    {fault:15} " + ", ".join(f"{key} {value:.3f}" for key, value in row.items()), flush=True)
    good = [report for report, fault in zip(found, faults, strict=True) if not fault]
    print(f"    of the good pairs {100 * sum(map(bool, good)) / len(good):.2f} % are reported", flush=True)
    return {"false_positives": touched, "seconds": seconds, "pairs": len(pairs), **table}


def main() -> None:
    """Measure all corpora."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--most", type=int, default=20_000, help="pairs of a large corpus")
    parser.add_argument("--only", default="", help="corpora whose name contains this")
    options = parser.parse_args()
    select: Callable[[str], bool] = lambda name: options.only in name  # noqa: E731
    found = {
        name: measure(name, *corpus) for name, corpus in corpora(options.data, options.most).items() if select(name)
    }
    rounded = json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 4))
    print(json.dumps(rounded))


if __name__ == "__main__":
    main()
