"""The `[data]` table of an encoder-decoder model: pairs of text, or plain text with span corruption; reading pairs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import pydantic

from transduce.config import Config, Table
from transduce.data.prepared import read_json, read_manifest
from transduce.data.ragged import Ragged
from transduce.data.report import CorpusCounter
from transduce.data.settings import SPLITS, FilteredDataConfig, PlainTextConfig, Rule, corpus_reader
from transduce.data.synthetic import SyntheticPictures, SyntheticTask
from transduce.errors import DataError, MissingInput, brief
from transduce.storage.layout import DATA, MANIFEST, REPORT
from transduce.text.corpus import STDIN, CorpusFiles, Languages, Pair, read_pairs
from transduce.text.image_file import ImageFilesConfig, check_pillow
from transduce.text.lines import shown
from transduce.text.tokenizer.special import NAME, LanguageTags

# Where pairs come from.


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


def corpus_pairs(
    corpora: Sequence[PairCorpus],
    images: ImageFilesConfig | None = None,
    counter: CorpusCounter | None = None,
    languages: Languages = (None, None),
) -> Iterator[Pair]:
    """Yield the pairs of some corpora, one after the other; with `images`, sources of files are paths of images.

    `counter` counts the images and the units of documents that are dropped; `languages` are those of corpora that name
    none themselves.
    """
    counter = counter or CorpusCounter()

    def skip(pair: Pair, reason: str) -> None:
        counter.read += 1
        counter.count(reason, [pair], dropped=1)

    for corpus in corpora:
        if not isinstance(corpus, CorpusFiles):
            yield from corpus.pairs()
        elif images is None:
            yield from read_pairs(corpus, languages, skip)
        else:
            yield from _image_pairs(corpus, images, counter)


def _image_pairs(corpus: CorpusFiles, images: ImageFilesConfig, counter: CorpusCounter) -> Iterator[Pair]:
    """Yield the pairs of a corpus of image files, with pixels in place of their paths."""
    check_pillow()
    file = corpus.path or corpus.source or STDIN
    reader = images.reader(file)
    before, pixels = "", ""
    for pair in read_pairs(corpus):
        if pair.source.strip() and pair.source != before:  # captions of one image are often on consecutive lines
            try:
                pixels = reader.read(pair.source, f"{shown(file)}:{pair.line}")
            except (DataError, MissingInput):
                if images.unreadable == "error":
                    raise
                counter.read += 1
                counter.count("unreadable_image", [pair], dropped=1)
                continue
            before = pair.source
        yield pair._replace(source=pixels) if pair.source.strip() else pair


_KINDS: dict[str, type[Config]] = {"task": SyntheticTask, "pictures": SyntheticPictures, "prepared": PreparedPairs}
"""The class of a corpus by a key of its table; any other is `CorpusFiles`."""


def _choose(table: Table) -> type[Config]:
    if "text" in table:
        raise ValueError("some corpora are pairs and some are plain text; a model learns from one or the other")
    return next((_KINDS[name] for name in _KINDS if name in table), CorpusFiles)


Corpora = Annotated[
    PairCorpus | tuple[PairCorpus, ...],
    corpus_reader(_choose, "{source = 'a.txt', target = 'b.txt'} for pairs, {text = 'c.txt'} for plain text"),
]
"""One corpus, or several: mixed by their weights in training, one after the other elsewhere."""


def alignment_file(corpus: PairCorpus) -> str | None:
    """Return the file with the word alignments of a corpus, if it has one."""
    return corpus.alignment if isinstance(corpus, CorpusFiles) else None


class TranslationConfig(FilteredDataConfig):
    """Pairs to train, validate and test on, and which of them to leave out.

    Pairs with an empty side are always left out. The rules for ratio, duplicates, copies and leakage apply to training
    pairs (and those held out of them); in a validation or test corpus these are counted and kept, so that scores stay
    comparable with those of others.
    """

    kind: ClassVar[str] = "translation"

    train: Corpora
    """The training pairs: one corpus, or a list of them, each with its `weight`, which is how often its pairs are
    seen in an epoch. A pair that occurs in several is taken from the one with the highest weight."""
    validation: Corpora | None = None
    """The pairs by which checkpoints are selected; without it some are held out of the training pairs."""
    test: Corpora | None = None
    """The pairs for final scores; never trained on."""
    extra_validation: Corpora | None = None
    """Pairs whose score is reported beside that of the validation pairs, never trained on or selected by: those of a
    model's earlier training, for example, to see what fine-tuning makes it forget."""
    source_language: str | None = None
    """Language of the source, for the model card and for scoring (`de`, `en-GB`, …)."""
    target_language: str | None = None
    """Language of the target. Given here it is a note; given for single corpora, the model learns to translate into
    several languages, one of which is chosen per request."""
    max_length: int = pydantic.Field(default=256, ge=1, le=1_000_000)
    """Maximum tokens of a side, without start and end; longer pairs are left out of every split. So are lines of
    more than 40 characters per allowed token, which are not even tokenised."""
    max_ratio: float = pydantic.Field(default=9.0, ge=1)
    """Maximum ratio between the lengths of the two sides in tokens, where the shorter counts as at least 5 tokens:
    with 9, nothing up to 45 tokens is ever left out."""
    images: ImageFilesConfig | None = None
    """Settings of a corpus of image files: the source of each line is the path of a PNG or JPEG file. Needs the extra
    `images`. `max_length` and `max_ratio` do not apply to images."""
    copies: Rule = "keep"
    """What to do when source and target are equal. In translation such lines are the most harmful noise there is
    (Khayrallah and Koehn 2018): drop them. In spelling, normalisation or copying they are part of the task."""

    align: bool = False
    """Align the tokens of the training pairs, for `training.guided_alignment`, which turns it on: as the file
    `alignment` of a corpus says, or else by their co-occurrence (fast_align's model, in both directions)."""

    @pydantic.model_validator(mode="after")
    def _check_alignments(self) -> Self:
        for name in SPLITS[1:]:
            if any(map(alignment_file, self.of_split(name))):
                raise ValueError(f"an alignment is for training corpora; leave it out of {name}")
        if self.images is not None and self.has_alignments:
            raise ValueError("images have no words to align; leave out align and alignment")
        return self

    @pydantic.model_validator(mode="after")
    def _check_languages(self) -> Self:
        for name in SPLITS:
            for corpus in self.of_split(name):
                if self.languages and self.languages_of(corpus)[1] is None:
                    raise ValueError(
                        f"some training corpora have a target_language, {corpus.name} ({name}) has none; set it too"
                    )
        for language in self.languages:
            if not re.fullmatch(NAME, language):
                raise ValueError(
                    f"target_language {brief(language)} is invalid; use a tag such as de, pt-BR or zh_Hans"
                )
        return self

    @property
    def length_limits(self) -> tuple[int, float]:
        """The maximum length and ratio; images, which are all of one size, are never too long."""
        if self.images is None or self.images.size is None:
            return self.max_length, self.max_ratio
        return max(self.max_length, self.images.size**2), math.inf

    @property
    def has_alignments(self) -> bool:
        """Whether the training pairs are aligned when they are prepared."""
        return self.align or any(map(alignment_file, self.corpora))

    @property
    def languages(self) -> list[str]:
        """The target languages that a request can choose from; empty unless training corpora name theirs."""
        if all(corpus.target_language is None for corpus in self.corpora):
            return []
        return sorted({language for corpus in self.corpora if (language := self.languages_of(corpus)[1])})

    def languages_of(self, corpus: PairCorpus) -> tuple[str | None, str | None]:
        """The languages of a corpus's sources and targets: its own, or those given for all."""
        return corpus.source_language or self.source_language, corpus.target_language or self.target_language


class SpanCorruptionConfig(PlainTextConfig):
    """Plain text of which pairs are made, for an encoder-decoder model (T5).

    15 % of the tokens of a block are replaced by sentinels, in spans of three on average, and are the target (Raffel et
    al. 2020, section 3.1.4).
    """

    kind: ClassVar[str] = "span_corruption"

    objective: Literal["span_corruption"]
    """span_corruption; without it, plain text is for a language model."""
