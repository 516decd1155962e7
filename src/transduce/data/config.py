"""The `[data]` table of a recipe: which pairs or which text, and what of it is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, Literal, Self

import pydantic

from transduce.config import Config
from transduce.data.again import PreparedPairs
from transduce.data.pictures import DrawnPictures
from transduce.data.synthetic import SyntheticTask
from transduce.errors import SettingsError, brief
from transduce.text.corpus import STDIN, CorpusFiles, Pair, read_pairs
from transduce.text.lines import is_stream
from transduce.text.plain import TextFile
from transduce.text.tokenizer.tag import NAME

RATIO_FLOOR = 5
"""A side counts as at least this many tokens when two lengths are compared."""

CHARACTERS_PER_TOKEN = 40
"""No tokenizer of ours has a line with more characters per token than this that anybody would miss."""

Rule = Literal["keep", "drop"]


Source = CorpusFiles | SyntheticTask | DrawnPictures | TextFile | PreparedPairs
"""Where pairs come from: files, a task that makes them, what was prepared before; or a file of plain text."""


def _which(value: Any) -> Any:
    """Read a table with a `task` as a synthetic task, one with `pictures` as drawn ones, one with a `text` as plain
    text, one with `prepared` as pairs of another run, any other as files of pairs, so that a refusal speaks of the
    right one."""
    if isinstance(value, Source):
        return value
    if not isinstance(value, dict):
        raise ValueError("pairs are named by a table, such as {source = 'a.txt', target = 'b.txt'}, text by {text = …}")
    kinds: dict[str, type[Config]] = {
        "task": SyntheticTask,
        "pictures": DrawnPictures,
        "text": TextFile,
        "prepared": PreparedPairs,
    }
    kind = next((kinds[name] for name in kinds if name in value), CorpusFiles)
    try:
        return kind.from_table(value, "it")
    except SettingsError as error:
        raise ValueError(str(error).removeprefix("it: ")) from None


def _which_of_many(value: Any) -> Any:
    """Read one corpus, or a list of them as several."""
    if not isinstance(value, list | tuple):
        return _which(value)
    if not value:
        raise ValueError("an empty list names no pairs; give at least one corpus")
    return tuple(_which(corpus) for corpus in value)


Mixed = Annotated[Source | tuple[Source, ...], pydantic.BeforeValidator(_which_of_many)]
"""One corpus, or several: to be mixed by their weights, or one after the other."""


class DataConfig(Config):
    """Which pairs to learn from and to check with, and what to leave out.

    Every line that is not used is counted with its reason. Pairs with an empty side are always left out. The rules
    for ratio, duplicates, copies and leakage are for training pairs (and what is held out of them); in a validation
    or test corpus these are counted and kept, so that scores stay comparable with other people's.

    Plain text (`{text = "corpus.txt"}`) is one stream of tokens with the end token between documents, which is cut into
    blocks; the rules for pairs do not apply to it.
    """

    train: Mixed
    """The pairs to learn from: one corpus, or a list of them, each with its `weight`, which is how often its pairs are
    seen in an epoch. A pair that stands in several is taken from the one with the highest weight."""
    validation: Mixed | None = None
    """The pairs to choose by; without it some are held out of the training pairs."""
    test: Mixed | None = None
    """The pairs to report on; never learnt from."""
    extra_validation: Mixed | None = None
    """Pairs whose score is watched beside that of the validation pairs, and never learnt from or chosen by: those of
    what a model could do before, so that one sees what it forgets."""
    validation_fraction: float = pydantic.Field(default=0.01, ge=0, le=0.5)
    """Share of the training pairs that is held out when there is no validation corpus (at least one source; 0 holds
    out none). All pairs of a source go together, chosen by a hash of the source text: the same source never stands
    on both sides, and adding lines to the corpus changes little in the choice. Of plain text, this share of the
    characters at the end of each corpus, in whole documents unless the last one is larger; a million at most."""
    validation_max_size: int = pydantic.Field(default=2000, ge=1, le=1_000_000)
    """Most pairs held out."""
    source_language: str | None = None
    """Language of the source, for the model's card and for scoring (`de`, `en-GB`, …)."""
    target_language: str | None = None
    """Language of the target. Said here it is a note; said of single corpora, the model learns to be asked for it."""
    max_length: int = pydantic.Field(default=256, ge=1, le=1_000_000)
    """Most tokens a side may have, without start and end; longer pairs are left out of every split. So are lines of
    more than 40 characters per allowed token, which are not even tokenised."""
    max_ratio: float = pydantic.Field(default=9.0, ge=1)
    """Left out when the longer side has more than this many times the tokens of the shorter, counted as at least 5:
    with 9, nothing up to 45 tokens is ever extreme."""
    duplicates: Rule = "drop"
    """What to do with a pair that stood in the corpus before. Repeated pairs are learnt by heart at the expense of
    the rest (Lee et al. 2022); keep them where how often a pair occurs means something."""
    copies: Rule = "keep"
    """What to do when source and target are equal. In translation such lines are the most harmful noise there is
    (Khayrallah and Koehn 2018): drop them. In spelling, normalisation or copying they are part of the task."""
    leakage: Rule = "drop"
    """What to do with a training pair whose source also stands in the validation or test corpus."""
    block_size: int | None = pydantic.Field(default=None, ge=2, le=1_000_000)
    """Of plain text: how many tokens the model reads at once. Filled in with as many as its positions take, or 256."""
    corrupt: Literal["spans"] | None = None
    """Of plain text: make pairs of blocks for a model that reads and writes. spans: 15 % of the tokens are taken out,
    in stretches of three on average, and are what is asked for (Raffel et al. 2020, section 3.1.4)."""

    @pydantic.model_validator(mode="after")
    def _possible(self) -> Self:
        others = [
            (name, corpus) for name in ("validation", "test", "extra_validation") for corpus in self.of_split(name)
        ]
        if sum(map(reads_stdin, (*self.corpora, *(corpus for _, corpus in others)))) > 1:
            raise ValueError("standard input can be only one of the corpora; give the others as files")
        for name, corpus in others:
            if corpus.weight is not None:
                raise ValueError(f"a weight is for training corpora; leave it out of {name}")
        named = [*(("train", corpus) for corpus in self.corpora), *others]
        if len({isinstance(corpus, TextFile) for _, corpus in named}) > 1:
            raise ValueError("some corpora are pairs and some are plain text; a model learns from one or the other")
        for name in ("block_size", "corrupt"):
            if getattr(self, name) is not None and not self.is_text:
                raise ValueError(f"{name} is for plain text, {{text = 'file'}}, not for pairs; leave it out")
        for name, corpus in named:
            if self.languages and self.languages_of(corpus)[1] is None:
                raise ValueError(
                    f"some training corpora say their target_language, {corpus.name} ({name}) does not; say it too"
                )
        for language in self.languages:
            if not re.fullmatch(NAME, language):
                raise ValueError(
                    f"target_language {brief(language)} cannot be asked for: write a name such as de, pt-BR or zh_Hans"
                )
        return self

    @property
    def is_text(self) -> bool:
        """Whether the corpora are plain text, not pairs."""
        return isinstance(self.corpora[0], TextFile)

    @property
    def corpora(self) -> tuple[Source, ...]:
        """The training corpora, in order."""
        return self.of_split("train")

    def of_split(self, name: str) -> tuple[Source, ...]:
        """The corpora of train, validation, test or extra_validation, in order."""
        found: Source | tuple[Source, ...] | None = getattr(self, name)
        return () if found is None else found if isinstance(found, tuple) else (found,)

    @property
    def languages(self) -> list[str]:
        """The languages that the model learns to be asked for; none unless training corpora name theirs."""
        if all(corpus.target_language is None for corpus in self.corpora if not isinstance(corpus, TextFile)):
            return []
        return sorted({language for corpus in self.corpora if (language := self.languages_of(corpus)[1])})

    def languages_of(self, corpus: Source) -> tuple[str | None, str | None]:
        """The languages of a corpus's sources and targets, by itself or by what is said for all."""
        if isinstance(corpus, TextFile):
            return None, None
        return corpus.source_language or self.source_language, corpus.target_language or self.target_language


def reads_stdin(corpus: Source | None) -> bool:
    """Whether a corpus comes from standard input."""
    return STDIN in _names(corpus)


def reads_once(corpus: Source) -> bool:
    """Whether a corpus comes from standard input or a pipe, which can be read once only."""
    return any(map(is_stream, _names(corpus)))


def _names(corpus: Source | None) -> list[str]:
    """The files of a corpus."""
    if isinstance(corpus, TextFile):
        return [corpus.text]
    names = (corpus.source, corpus.target, corpus.path) if isinstance(corpus, CorpusFiles) else ()
    return [name for name in names if name is not None]


def corpus_pairs(corpus: Source | tuple[Source, ...]) -> Iterator[Pair]:
    """Yield the pairs of a corpus, wherever they come from; of several, one after the other."""
    if isinstance(corpus, tuple):
        return chain.from_iterable(map(corpus_pairs, corpus))
    assert not isinstance(corpus, TextFile), "plain text has no pairs"
    return read_pairs(corpus) if isinstance(corpus, CorpusFiles) else corpus.pairs()
