"""The tasks by the `[data]` table of a recipe; reading that table, preparing and loading a corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transduce.config import Table
from transduce.data.prepared import GivenTokenizers, Prepared, open_prepared, read_manifest
from transduce.data.report import Report
from transduce.data.settings import DEFAULT_BLOCK_SIZE, DataConfig, PlainTextConfig
from transduce.data.store import BlockStore, ExampleStore, PairStore
from transduce.errors import DataError, SettingsError, suggestion
from transduce.tasks.language_modeling.task import LanguageModelingConfig, LanguageModelingTask
from transduce.tasks.text_encoding.config import HEADS, TextEncodingConfig
from transduce.tasks.text_encoding.task import TextEncodingTask
from transduce.tasks.translation.config import SpanCorruptionConfig, TranslationConfig
from transduce.tasks.translation.span_corruption import longest_corrupted
from transduce.tasks.translation.task import SpanCorruptionTask, TranslationTask
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.task import Task

TASKS: dict[str, Callable[[Any], Task[Any]]] = {
    "translation": TranslationTask,
    "span_corruption": SpanCorruptionTask,
    "language_modeling": LanguageModelingTask,
    "text_encoding": TextEncodingTask,
}
"""The tasks by the `kind` of their [data] settings; span corruption is a form of translation."""


def read_data_table(table: Table, where: str) -> DataConfig:
    """Read a recipe's [data]: the settings of the task that its objective, or else its training corpus, is for."""
    objectives: dict[str, type[DataConfig]] = {"span_corruption": SpanCorruptionConfig}
    objectives |= dict.fromkeys(HEADS, TextEncodingConfig)
    objective, train = table.get("objective"), table.get("train")
    if objective is not None:
        if objective not in objectives:
            hint = suggestion(str(objective), list(objectives))
            raise SettingsError(f"{where}: objective = '{objective}' is not one of {', '.join(objectives)}{hint}")
        return objectives[objective].from_table(table, where)
    corpora = train if isinstance(train, list | tuple) else [train]
    is_text = any(isinstance(corpus, dict) and "text" in corpus for corpus in corpora)
    return (LanguageModelingConfig if is_text else TranslationConfig).from_table(table, where)


def task_for(data: DataConfig) -> Task[Any]:
    """Return the task of these [data] settings."""
    return TASKS[data.kind](data)


def prepare(
    data: DataConfig,
    tokenizer: TokenizerConfig,
    folder: Path,
    progress: Callable[[str, int], None] | None = None,
    given: GivenTokenizers | None = None,
) -> Report:
    """Filter and tokenise a corpus into `folder`, which is complete or absent, and return the report.

    `given` are the tokenizers of `tokenizer.folder`; without it new ones are trained.
    """
    assert (given is None) == (tokenizer.folder is None), "the caller loads the tokenizers of tokenizer.folder"
    return task_for(data).prepare(tokenizer, folder, progress, given)


def load_prepared(folder: Path, thorough: bool = False, block_size: int | None = None) -> Prepared:
    """Open a prepared corpus; `thorough` checks every byte against the manifest, not only the small files.

    Plain text is cut into blocks of `block_size` tokens, by default that of its settings.
    """
    manifest = read_manifest(folder, thorough)
    try:
        data = read_data_table(manifest.settings.get("data", {}), str(folder))
    except SettingsError as error:
        raise DataError(f"{error}; it was prepared by another version: prepare the corpus again") from None
    token_bytes = dict(manifest.token_bytes)
    if not isinstance(data, PlainTextConfig):
        store = ExampleStore if isinstance(data, TextEncodingConfig) else PairStore
        return open_prepared(folder, manifest, data, lambda path, report: store.open(path, token_bytes, report))
    size = block_size or data.block_size or DEFAULT_BLOCK_SIZE
    corrupts = isinstance(data, SpanCorruptionConfig)
    return open_prepared(
        folder,
        manifest,
        data,
        lambda path, report: BlockStore.open(path, token_bytes["target"], report, size, 0 if corrupts else 1),
        longest_corrupted(size) if corrupts else (0, size - 1),
    )
