"""Base classes of the `[data]` tables of all tasks: corpora by split, and how validation data is held out.

Each task has its own class (`tasks/*/config.py`) with the corpora that it reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic

from transduce.config import Config, Table
from transduce.errors import SettingsError
from transduce.text.corpus import STDIN, CorpusFiles, TextFile
from transduce.text.lines import is_stream

SPLITS = ("train", "validation", "test", "extra_validation")

Rule = Literal["keep", "drop"]


class DataConfig(Config):
    """Which corpora to train, validate and test on. Every line that is not used is counted with its reason."""

    kind: ClassVar[str]
    """Key of the task in `tasks.catalog`; a prepared folder states it in its manifest."""

    validation_fraction: float = pydantic.Field(default=0.01, ge=0, le=0.5)
    """Fraction of the training data that is held out when there is no validation corpus; 0 holds out none. Pairs and
    examples are chosen by a hash of their source text, at least one: the same source is never both in training and in
    validation, and adding lines to the corpus changes little in the choice. Of plain text it is the end of each
    corpus, in whole documents unless the last one is larger; a million characters at most."""

    @pydantic.model_validator(mode="after")
    def _check_corpora(self) -> Self:
        if sum(reads_stdin(corpus) for name in SPLITS for corpus in self.of_split(name)) > 1:
            raise ValueError("standard input can be only one of the corpora; give the others as files")
        for files in self.of_split("train"):
            source = getattr(files, "source", None)
            if source is not None and source == getattr(files, "target", None):
                raise ValueError(f"source and target are the same file, {source}; give the file of the other side")
        for name in SPLITS[1:]:
            if any(corpus.weight is not None for corpus in self.of_split(name)):
                raise ValueError(f"a weight is for training corpora; leave it out of {name}")
        return self

    @property
    def corpora(self) -> tuple[Any, ...]:
        """The training corpora, in order."""
        return self.of_split("train")

    def of_split(self, name: str) -> tuple[Any, ...]:
        """The corpora of train, validation, test or extra_validation, in order."""
        found = getattr(self, name, None)
        return () if found is None else found if isinstance(found, tuple) else (found,)


class FilteredDataConfig(DataConfig):
    """The same for corpora of separate pairs or examples, of which some are filtered out."""

    validation_max_size: int = pydantic.Field(default=2000, ge=1, le=1_000_000)
    """Maximum number of pairs or examples held out (for objective mask: documents)."""
    duplicates: Rule = "drop"
    """What to do with a training pair or example that occurred before. Repeated ones are memorised at the expense of
    the rest (Lee et al. 2022); keep them where their frequency means something. For objective mask all lines are
    kept."""
    leakage: Rule = "drop"
    """What to do with a training pair or example whose source also occurs in the validation or test corpus."""


def corpus_reader(choose: Callable[[Table], type[Config]], example: str) -> pydantic.BeforeValidator:
    """Return a validator that reads one corpus, or a list of them as several.

    `choose` picks the class of a corpus by the keys of its table, so that an error is about the right one.
    """

    def read(value: Any) -> Any:
        if isinstance(value, Config):
            return value
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError("the list of corpora is empty; give at least one corpus")
            return tuple(map(read, value))
        if not isinstance(value, dict):
            raise ValueError(f"a corpus is a table, such as {example}")
        try:
            return choose(value).from_table(value, "it")
        except SettingsError as error:
            raise ValueError(str(error).removeprefix("it: ")) from None

    return pydantic.BeforeValidator(read)


def _text_only(table: Table) -> type[Config]:
    if "text" not in table:
        raise ValueError("some corpora are pairs and some are plain text; a model learns from one or the other")
    return TextFile


TextCorpora = Annotated[TextFile | tuple[TextFile, ...], corpus_reader(_text_only, "{text = 'corpus.txt'}")]
"""One file of plain text, or several."""


DEFAULT_BLOCK_SIZE = 256
"""Tokens of a block of plain text where neither the settings nor the model's positions limit it."""


class PlainTextConfig(DataConfig):
    """The same for plain text: one stream of tokens with the end token before each document, cut into blocks."""

    train: TextCorpora
    """The training text: one corpus, or a list of them, each with its `weight`, which is how often its blocks are
    seen in an epoch."""
    validation: TextCorpora | None = None
    """The text by which checkpoints are selected; without it the end of each training corpus is held out."""
    test: TextCorpora | None = None
    """The text for final scores; never trained on."""
    extra_validation: TextCorpora | None = None
    """Text whose loss is reported beside that of the validation text, never trained on or selected by: that of a
    model's earlier training, for example, to see what fine-tuning makes it forget."""
    language: str | None = None
    """Language of the text, for the model card."""
    block_size: int | None = pydantic.Field(default=None, ge=2, le=1_000_000)
    """Tokens that the model reads at once; by default as many as its positions allow, or 256."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _reject_filters(cls, table: Any) -> Any:
        for name in FilteredDataConfig.model_fields.keys() - DataConfig.model_fields.keys():
            if isinstance(table, dict) and name in table:
                instead = "; set validation_fraction" if name == "validation_max_size" else ""
                raise ValueError(f"plain text has no setting '{name}', which is for pairs and examples{instead}")
        return table


def reads_stdin(corpus: Any) -> bool:
    """Whether a corpus is read from standard input."""
    return STDIN in _files(corpus)


def reads_once(corpus: Any) -> bool:
    """Whether a corpus comes from standard input or a pipe, which can be read only once."""
    return any(map(is_stream, _files(corpus)))


def _files(corpus: Any) -> list[str]:
    names: list[str | None] = [corpus.text] if isinstance(corpus, TextFile) else []
    if isinstance(corpus, CorpusFiles):
        names += [corpus.source, corpus.target, corpus.path, corpus.alignment]
    return [name for name in names if name is not None]
