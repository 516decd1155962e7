"""Where pairs come from: files, a synthetic task, drawn pictures, or the prepared corpus of another run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pydantic

from transduce.config import Config
from transduce.data.prepared import read_json, read_manifest
from transduce.data.ragged import Ragged
from transduce.data.synthetic import SyntheticPictures, SyntheticTask
from transduce.errors import DataError
from transduce.storage.layout import DATA, MANIFEST, REPORT
from transduce.text.corpus import CorpusFiles, Pair, read_pairs
from transduce.text.tokenizer.special import LanguageTags


class PreparedPairs(Config):
    """The text of one split of a prepared corpus, or of the corpus in a run folder."""

    prepared: str
    """Folder that `transduce prepare` or `transduce train` made."""
    split: Literal["train", "validation", "test"] = "validation"
    """Which of its splits."""
    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each of its pairs is seen in an epoch, 1 if not given. For training corpora."""
    source_language: str | None = None
    """Language of the sources."""
    target_language: str | None = None
    """Language of the targets; of a corpus with several, only the pairs into this one are taken."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        language = "" if self.target_language is None else f" into {self.target_language}"
        return f"{self.prepared} ({self.split}{language})"

    @property
    def folder(self) -> Path:
        """The prepared corpus itself, where a run folder was given."""
        folder = Path(self.prepared)
        return folder / DATA if (folder / DATA / MANIFEST).is_file() else folder

    def tags(self) -> LanguageTags | None:
        """The languages of the corpus, where it has several."""
        read_manifest(self.folder)
        table = read_json(self.folder / REPORT).get("tags")
        return None if table is None else LanguageTags.from_table(table, str(self.folder / REPORT))

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs in order; line numbers count within the split."""
        folder = self.folder
        manifest = read_manifest(folder)
        if manifest.task != "translation":
            raise DataError(f"{folder}: was prepared for {manifest.task} and has no pairs; give a corpus of pairs")
        if not any(Path(file).parts[0] == self.split for file in manifest.files):
            raise DataError(f"{folder}: has no {self.split} pairs; give another corpus")
        if f"{self.split}/source.text.bin" not in manifest.files:
            raise DataError(
                f"{folder}: was prepared from plain text, which it does not keep; give the text file itself"
            )
        sides = [Ragged.open(folder / self.split, f"{side}.text", np.uint8) for side in ("source", "target")]
        tags = self.tags()
        token, first = None, None
        if tags is not None and self.target_language is not None:
            if self.target_language not in tags.target_tokens:
                raise DataError(
                    f"{folder}: has no pairs into '{self.target_language}'; "
                    f"available: {', '.join(sorted(tags.target_tokens))}"
                )
            token, place = tags.target_tokens[self.target_language], tags.place
            first = Ragged.open(folder / self.split, f"{place}.tokens", f"<u{manifest.token_bytes[place]}")
        for row in range(len(sides[0])):
            if first is None or token in first[row][:2]:
                source, target = (side[row].tobytes().decode("utf-8") for side in sides)
                yield Pair(source, target, row + 1)


PairCorpus = CorpusFiles | SyntheticTask | SyntheticPictures | PreparedPairs


def corpus_pairs(corpora: Sequence[PairCorpus]) -> Iterator[Pair]:
    """Yield the pairs of some corpora, one after the other."""
    for corpus in corpora:
        yield from read_pairs(corpus) if isinstance(corpus, CorpusFiles) else corpus.pairs()
