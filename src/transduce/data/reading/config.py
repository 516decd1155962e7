"""The `[data]` table of a recipe for a reader: which task, which files, and how long a text may be."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

import pydantic

from transduce.config import Config
from transduce.errors import SettingsError

Task = Literal["mask", "classify", "tag", "answer"]
Layout = Literal["lines", "tsv", "jsonl", "conll", "squad", "babi"]

HEADS: dict[Task, str] = {"mask": "language", "classify": "labels", "tag": "tags", "answer": "span"}
"""What a reader's head says, by task."""

LAYOUTS: dict[Task, tuple[Layout, ...]] = {
    "mask": ("lines",),
    "classify": ("tsv", "jsonl", "babi"),
    "tag": ("conll",),
    "answer": ("squad", "jsonl"),
}
_BY_NAME: dict[str, Layout] = {".tsv": "tsv", ".jsonl": "jsonl"}


class ReadingFiles(Config):
    """One file of examples, plain or gzip."""

    path: str
    """The file."""

    format: Literal["auto", "lines", "tsv", "jsonl", "conll", "squad", "babi"] = "auto"
    """What it is; "auto" goes by task and name: .tsv or .jsonl for classify, CoNLL for tag, .jsonl or else the JSON of
    SQuAD for answer, lines for mask. For classify there is also babi, which must be said: stories, whose labels are the
    answers to their questions."""

    text: int | str | None = None
    """Column of the text, or of the word in CoNLL: a number from 0, or a name where the first line is a header or the
    file is JSONL. By default 0 or "text"; in CoNLL-U the words' column, 1."""

    second: int | str | None = None
    """Column of a second text, for labels of pairs; none by default."""

    label: int | str | None = None
    """Column of the label: by default 1 or "label", after the second text if there is one; in CoNLL-U 3, the
    universal part of speech, in other CoNLL files the last."""

    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each of its examples is seen in an epoch, 1 if not given. For training files."""

    @property
    def name(self) -> str:
        """What a report calls it."""
        return self.path

    def layout(self, task: Task) -> Layout:
        """The format with "auto" worked out."""
        known = LAYOUTS[task]
        if self.format != "auto":
            if self.format not in known:
                raise SettingsError(f"{self.path}: the task {task} reads {' or '.join(known)}, not {self.format}")
            return self.format
        suffixes = [suffix.lower() for suffix in PurePath(self.path).suffixes if suffix.lower() != ".gz"]
        found = _BY_NAME.get(suffixes[-1] if suffixes else "")
        return found if found in known else known[0]

    @property
    def is_conllu(self) -> bool:
        """Whether the columns are those of Universal Dependencies."""
        return ".conllu" in (suffix.lower() for suffix in PurePath(self.path).suffixes)


def _files(value: Any) -> Any:
    """Read one file or a list of them."""
    if isinstance(value, ReadingFiles):
        return value
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("an empty list names no examples; give at least one file")
        return tuple(_files(one) for one in value)
    if not isinstance(value, dict):
        raise ValueError("examples are named by a table, such as {path = 'a.tsv'}")
    try:
        return ReadingFiles.from_table(value, "it")
    except SettingsError as error:
        raise ValueError(str(error).removeprefix("it: ")) from None


Files = Annotated[ReadingFiles | tuple[ReadingFiles, ...], pydantic.BeforeValidator(_files)]


class ReadingConfig(Config):
    """What a reader learns from and is checked with. Every line that is not used is counted with its reason."""

    task: Task
    """mask: plain text, a sentence per line and a blank line between documents, with hidden pieces to guess. classify:
    texts with labels. tag: words with labels. answer: questions whose answers stand in a text."""
    train: Files
    """The examples to learn from: one file, or several, each with its `weight`."""
    validation: Files | None = None
    """The examples to choose by; without it some are held out of the training examples."""
    test: Files | None = None
    """The examples to report on; never learnt from."""
    validation_fraction: float = pydantic.Field(default=0.01, ge=0, le=0.5)
    """Share of the training examples that is held out when there is no validation file, at least one; 0 holds out
    none. They are chosen by a hash of the text; for mask whole documents are."""
    validation_max_size: int = pydantic.Field(default=2000, ge=1, le=1_000_000)
    """Most examples (for mask: documents) held out."""
    language: str | None = None
    """Language of the texts, for the model's card."""
    max_length: int = pydantic.Field(default=128, ge=8, le=1_000_000)
    """Most tokens that are read at once, those that frame a text included. Longer texts are cut (classify), or read in
    several pieces (tag, answer, mask)."""
    duplicates: Literal["keep", "drop"] = "drop"
    """What to do with a training example that stood there before; for mask all lines are kept."""
    leakage: Literal["keep", "drop"] = "drop"
    """What to do with a training example whose text also stands in the validation or test file."""
    mask_rate: float = pydantic.Field(default=0.15, gt=0, lt=1)
    """For mask: share of the pieces that are to be guessed; of ten, eight are hidden, one is another, one stays."""
    whole_words: bool = False
    """For mask: hide all pieces of a word or none."""
    next_sentence: bool = True
    """For mask: also ask whether the second half of a text follows the first; half of the time it is from another
    document."""
    stride: int = pydantic.Field(default=64, ge=1, le=1_000_000)
    """For answer: a long text is read in windows, which overlap by so many tokens, but by three quarters at most."""

    no_answer: bool = False
    """For answer: learn that some questions have none (SQuAD 2); otherwise such questions are left out."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        for name in ("validation", "test"):
            for files in self.of_split(name):
                if files.weight is not None:
                    raise ValueError(f"a weight is for training files; leave it out of {name}")
        for name in ("train", "validation", "test"):
            for files in self.of_split(name):
                try:
                    files.layout(self.task)
                except SettingsError as error:
                    raise ValueError(str(error)) from None
                if files.second is not None and self.task != "classify":
                    raise ValueError(f"a second text is for labels of pairs; leave it out of {name}")
        return self

    def of_split(self, name: str) -> tuple[ReadingFiles, ...]:
        """The files of a split, in order."""
        found: ReadingFiles | tuple[ReadingFiles, ...] | None = getattr(self, name)
        return () if found is None else found if isinstance(found, tuple) else (found,)

    @property
    def is_text(self) -> bool:
        """Whether it is plain text in blocks, as language models have it: no, a reader's rows are its own."""
        return False

    @property
    def block_size(self) -> None:
        """Tokens of such a block: there are none."""
        return None

    @property
    def corrupt(self) -> None:
        """What is done to plain text: nothing."""
        return None

    @property
    def head(self) -> str:
        """What a model's head must say."""
        return HEADS[self.task]
