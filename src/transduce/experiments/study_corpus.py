"""The parallel corpus of a study: generated, or found in a folder that `--data` names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.config import Table
from transduce.errors import MissingInput
from transduce.experiments.grammar import Grammar
from transduce.storage.atomic import atomic_folder
from transduce.storage.manifest import sha256
from transduce.tasks.translation.config import TranslationConfig
from transduce.tasks.translation.evaluation import TestSet, read_test_set

SPLITS = {"train": r"train", "validation": r"val|valid|validation|dev", "test": r"test[\w-]*"}
"""Names of the files of each split, before the language."""
EXPECTED = "train.SRC and train.TRG, val.SRC and val.TRG, test*.SRC and test*.TRG, each plain or .gz"

Files = tuple[Path, Path]
"""Sources and targets, line by line."""


@dataclass(frozen=True)
class StudyCorpus:
    """Line-aligned files of the three splits."""

    name: str
    languages: tuple[str, str]
    files: dict[str, Files]
    """By split: train, validation, test."""

    def settings(self) -> TranslationConfig:
        """The table [data] of a recipe."""
        table: Table = {
            split: {"source": str(source), "target": str(target)} for split, (source, target) in self.files.items()
        }
        table |= {"source_language": self.languages[0], "target_language": self.languages[1]}
        return TranslationConfig.from_table(table, f"the corpus {self.name}")

    def test_set(self, split: str) -> TestSet:
        """The pairs of a split to evaluate on."""
        source, target = self.files[split]
        return read_test_set(str(source), [str(target)], None)

    def fingerprint(self) -> str:
        """A hash of all files, wherever they are."""
        return hashlib.sha256(
            "".join(sha256(path) for pair in self.files.values() for path in pair).encode()
        ).hexdigest()


def find_corpus(folder: Path) -> StudyCorpus:
    """Find the files of a parallel corpus; of two languages, English is the source, or else the first by name.

    With several test sets the first by name is used. Files whose names have more parts, such as the tokenised
    `train.lc.norm.tok.de` of Multi30k, are left alone.
    """
    if not folder.is_dir():
        raise MissingInput(f"{folder}: no such folder; --data needs one with {EXPECTED}")
    languages = sorted(_found(folder, SPLITS["train"]))
    if len(languages) != 2:
        raise MissingInput(
            f"{folder}: has training files of {len(languages)} languages, not two; --data needs {EXPECTED}"
        )
    if "en" in languages:
        languages.sort(key=lambda language: language != "en")
    source, target = languages
    files = {}
    for split, pattern in SPLITS.items():
        found = _found(folder, pattern)
        stems = sorted(found.get(source, {}).keys() & found.get(target, {}).keys())
        if not stems:
            raise MissingInput(f"{folder}: has no {split} files in both {source} and {target}; --data needs {EXPECTED}")
        files[split] = (found[source][stems[0]], found[target][stems[0]])
    return StudyCorpus(folder.name, (source, target), files)


def _found(folder: Path, pattern: str) -> dict[str, dict[str, Path]]:
    """The files of a split: language -> the name before it -> path."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(rf"({pattern})\.([a-zA-Z-]{{2,8}})(\.gz)?", path.name)
        if match and match[2] != "gz":
            found.setdefault(match[2], {})[match[1]] = path
    return found


def generate_corpus(folder: Path, train: int, held_out: int) -> StudyCorpus:
    """Write the generated English-German corpus, unless it is there; `held_out` pairs for each evaluation.

    Each split has its own seed, so that the sizes can differ without changing the pairs.
    """
    sizes = {"train": train, "validation": held_out, "test": held_out}
    splits = {
        split: [(sentence.english, sentence.german) for sentence in Grammar(split).sentences(size)]
        for split, size in sizes.items()
    }
    return write_splits(folder / f"generated-{train}-{held_out}", splits, ("en", "de"), "generated")


def write_splits(
    folder: Path, splits: Mapping[str, Sequence[tuple[str, str]]], languages: tuple[str, str], name: str
) -> StudyCorpus:
    """Write pairs as line-aligned files, unless the folder exists."""
    if not folder.exists():
        with atomic_folder(folder) as temporary:
            for split, pairs in splits.items():
                for side, language in enumerate(languages):
                    text = "".join(f"{pair[side]}\n" for pair in pairs)
                    (temporary / f"{split}.{language}").write_text(text, encoding="utf-8", newline="\n")
    source, target = languages
    files = {split: (folder / f"{split}.{source}", folder / f"{split}.{target}") for split in splits}
    return StudyCorpus(name, languages, files)
