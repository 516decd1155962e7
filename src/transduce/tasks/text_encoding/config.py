"""The `[data]` table of a text encoder: the objective, the files of examples, and how long a text may be."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic

from transduce.config import Config
from transduce.data.settings import SPLITS, FilteredDataConfig, corpus_reader
from transduce.errors import SettingsError

Objective = Literal["mask", "classify", "tag", "answer"]
Layout = Literal["lines", "tsv", "jsonl", "conll", "squad", "babi"]

HEADS: dict[Objective, str] = {"mask": "language", "classify": "labels", "tag": "tags", "answer": "span"}
"""The head of a text encoder, by objective."""

LAYOUTS: dict[Objective, tuple[Layout, ...]] = {
    "mask": ("lines",),
    "classify": ("tsv", "jsonl", "babi"),
    "tag": ("conll",),
    "answer": ("squad", "jsonl"),
}
_BY_NAME: dict[str, Layout] = {".tsv": "tsv", ".jsonl": "jsonl"}


class ExampleFiles(Config):
    """One file of examples, plain or gzip."""

    path: str
    """The file."""

    format: Literal["auto", "lines", "tsv", "jsonl", "conll", "squad", "babi"] = "auto"
    """Its format; "auto" goes by objective and name: .tsv or .jsonl for classify, CoNLL for tag, .jsonl or else the
    JSON of SQuAD for answer, lines for mask. For classify there is also babi, which must be given: contexts with
    questions, whose labels are the answers."""

    text: int | str | None = None
    """Column of the text, or of the word in CoNLL: a number from 1 (-1 is the last), or a name where the first line is
    a header or the file is JSONL. By default 1 or "text"; in CoNLL-U the column of words, 2."""

    second_text: int | str | None = None
    """Column of a second text, for labels of pairs; none by default."""

    label: int | str | None = None
    """Column of the label: by default 2 or "label", after the second text if there is one; in CoNLL-U 4, the
    universal part of speech, in other CoNLL files the last."""

    weight: float | None = pydantic.Field(default=None, gt=0, le=1000)
    """How often each of its examples is seen in an epoch, 1 if not given. For training files."""

    @pydantic.model_validator(mode="after")
    def _check_columns(self) -> Self:
        if 0 in (self.text, self.second_text, self.label):
            raise ValueError("columns are counted from 1; 0 is none")
        return self

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.path

    def layout(self, objective: Objective) -> Layout:
        """The format, with "auto" resolved."""
        known = LAYOUTS[objective]
        if self.format != "auto":
            if self.format not in known:
                raise SettingsError(
                    f"{self.path}: the objective {objective} reads {' or '.join(known)}, not {self.format}"
                )
            return self.format
        suffixes = [suffix.lower() for suffix in PurePath(self.path).suffixes if suffix.lower() != ".gz"]
        found = _BY_NAME.get(suffixes[-1] if suffixes else "")
        return found if found in known else known[0]

    @property
    def is_conllu(self) -> bool:
        """Whether the columns are those of Universal Dependencies."""
        return ".conllu" in (suffix.lower() for suffix in PurePath(self.path).suffixes)


def saved_column(column: int | str) -> int | str:
    """Return a column as a model folder saves it: numbers from 0; names, and numbers from the end, as they are."""
    return column - 1 if isinstance(column, int) and column > 0 else column


def loaded_column(column: int | str) -> int | str:
    """Undo `saved_column`."""
    return column + 1 if isinstance(column, int) and column >= 0 else column


Files = Annotated[
    ExampleFiles | tuple[ExampleFiles, ...], corpus_reader(lambda table: ExampleFiles, "{path = 'examples.tsv'}")
]


class TextEncodingConfig(FilteredDataConfig):
    """Examples to train, validate and test a text encoder on."""

    kind: ClassVar[str] = "text_encoding"

    objective: Objective
    """mask: plain text, a sentence per line and a blank line between documents, with masked pieces to predict.
    classify: texts with labels. tag: words with labels. answer: questions whose answers are spans of a text."""
    train: Files
    """The training examples: one file, or several, each with its `weight`."""
    validation: Files | None = None
    """The examples by which checkpoints are selected; without it some are held out of the training examples."""
    test: Files | None = None
    """The examples for final scores; never trained on."""
    language: str | None = None
    """Language of the texts, for the model card."""
    max_length: int = pydantic.Field(default=128, ge=8, le=1_000_000)
    """Maximum tokens of a row, special tokens included. Longer texts are cut (classify), or encoded in several windows
    (tag, answer, mask)."""
    mask_probability: float = pydantic.Field(default=0.15, gt=0, lt=1)
    """For mask: fraction of the pieces to predict; of ten, eight are masked, one is replaced by another piece, one is
    kept."""
    whole_word_masking: bool = False
    """For mask: mask all pieces of a word or none."""
    next_sentence: bool = True
    """For mask: also predict whether the second half of a text follows the first; half of the time it is from another
    document."""
    stride: int = pydantic.Field(default=64, ge=1, le=1_000_000)
    """For answer: tokens by which the windows of a long text overlap, three quarters of a window at most."""
    allow_no_answer: bool = False
    """For answer: learn that some questions have no answer (SQuAD 2); otherwise such questions are left out."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _check_extra_validation(cls, table: Any) -> Any:
        if isinstance(table, dict) and "extra_validation" in table:
            raise ValueError(
                "extra_validation is for pairs and plain text; leave it out, and score the other examples afterwards "
                "with `transduce evaluate`"
            )
        return table

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> Self:
        for name in SPLITS:
            for files in self.of_split(name):
                try:
                    files.layout(self.objective)
                except SettingsError as error:
                    raise ValueError(str(error)) from None
                if files.second_text is not None and self.objective != "classify":
                    raise ValueError(f"second_text is for objective classify; leave it out of {name}")
        return self

    @property
    def head(self) -> str:
        """The head that a model needs."""
        return HEADS[self.objective]
