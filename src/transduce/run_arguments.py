"""The arguments of `transduce.train` and `fine_tune`: corpora as files or lists of strings, and settings by name.

Lists are written to the run folder, so that the run has its corpus, and its recipe says where.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.config import Config, Table, without_numpy
from transduce.errors import CannotCreate, DataError, SettingsError, suggestion
from transduce.inference.search.options import SearchOptions
from transduce.models.transformer import TransformerConfig
from transduce.recipe import TABLES
from transduce.storage.atomic import atomic_file
from transduce.storage.filesystem import create_parents
from transduce.storage.layout import RECIPE, TEXTS
from transduce.text.argument import checked_texts, is_several
from transduce.text.lines import check_surrogates
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig
from transduce.training.distributed import launched
from transduce.training.run_folder import check_unused

Texts = str | os.PathLike[str] | Iterable[str]
"""A file, or a list of strings."""
Both = str | os.PathLike[str] | tuple[Texts, Texts]
"""Pairs: one file with both sides, or (source, target)."""

SHORT = {
    "preset": "model",
    "source_language": "data",
    "target_language": "data",
}
"""Settings outside [training] that are given by their name alone, and their tables."""
ELSEWHERE: dict[str, type[Config]] = {"model": TransformerConfig, "tokenizer": TokenizerConfig, "search": SearchOptions}
"""Tables whose settings are given as a table."""
OTHER_NAMES = {
    "num_train_epochs": "epochs",
    "max_steps": "updates",
    "per_device_train_batch_size": "batch_tokens, in tokens",
    "batch_size": "batch_tokens, in tokens",
    "lr": "learning_rate",
    "warmup_steps": "warmup",
    "early_stopping_patience": "patience",
    "gradient_accumulation_steps": "gradient_accumulation",
    "eval_steps": "validate_every",
    "output_dir": "output",
    "references": "target",
}
"""Names that users of other trainers try, and ours."""


@dataclass
class Arguments:
    """What a run is made of: tables of a recipe, and files that have to be written first."""

    folder: Path
    tables: Table = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """Name in the run's folder of texts -> content."""

    def add_corpora(
        self,
        pairs: tuple[Texts | None, Texts | None],
        path: Any,
        text: Texts | None,
        **splits: Both | Texts | None,
    ) -> None:
        """Add all training corpora that are given, and the other splits by name."""
        if any(one is not None for one in pairs):
            self.add_pairs("train", *pairs)
        if path is not None:
            self.add_path("train", path)
        if text is not None:
            self.add_text("train", text)
        for split, given in splits.items():
            if given is not None:
                self.add_split(split, given)

    def add_pairs(self, split: str, source: Texts | None, target: Texts | None) -> None:
        """Add the source and target of a split: two files, or two lists."""
        if source is None or target is None:
            lacking = "source" if source is None else "target"
            raise SettingsError(f"{split}: {lacking} is missing; a corpus of pairs needs source and target")
        if not is_several(source) and not is_several(target):
            self._add(split, {"source": _path(source, "source"), "target": _path(target, "target")})
            return
        if not (is_several(source) and is_several(target)):
            raise TypeError(f"{split}: source and target must both be files, or both lists of strings")
        sides = [list(checked_texts(texts, name)) for texts, name in ((source, "source"), (target, "target"))]
        if len(sides[0]) != len(sides[1]):
            raise DataError(
                f"{split}: source has {len(sides[0]):,} texts, target has {len(sides[1]):,}; they must agree"
            )
        for name, texts in zip(("source", "target"), sides, strict=True):
            broken = next((number for number, text in enumerate(texts) if "\n" in text), None)
            if broken is not None:
                raise DataError(f"{split}: {name}[{broken}] contains a line break; replace it by a space")
            for number, text in enumerate(texts):
                check_surrogates(text, f"{split}: {name}[{number}]")
        rows = [{"source": one, "target": other} for one, other in zip(*sides, strict=True)]
        self._write(split, "path", "jsonl", "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))

    def add_path(self, split: str, path: Any) -> None:
        """Add one file with both sides, or with labelled examples."""
        self._add(split, {"path": _path(path, "path")})

    def add_text(self, split: str, text: Texts) -> None:
        """Add plain text: a file, or a list of documents."""
        if not is_several(text):
            self._add(split, {"text": _path(text, "text")})
            return
        documents = list(checked_texts(text, "text"))
        for number, document in enumerate(documents):
            check_surrogates(document, f"text[{number}]")
            if not all(line.strip() for line in document.strip("\n").split("\n")):
                what = "has a blank line, at which a document ends" if document.strip() else "is blank"
                raise DataError(f"text[{number}] {what}; leave it out, or pass a file instead of a list")
        self._write(split, "text", "txt", "".join(document.strip("\n") + "\n\n" for document in documents))

    def add_split(self, split: str, given: Any) -> None:
        """Add validation or test data: (source, target), or one file with both sides, or a table of settings."""
        if isinstance(given, tuple) and len(given) == 2:
            self.add_pairs(split, *given)
        elif isinstance(given, Mapping):
            self._add(split, dict(given))
        elif isinstance(given, str | os.PathLike):
            is_text = "text" in self.tables.get("data", {}).get("train", {})
            self.add_text(split, given) if is_text else self.add_path(split, given)
        elif is_several(given) and "text" in self.tables.get("data", {}).get("train", {}):
            self.add_text(split, given)
        else:
            raise TypeError(
                f"{split} must be (source, target), or one file with both sides, not {type(given).__name__}"
            )

    def add_settings(self, settings: Mapping[str, Any]) -> None:
        """Add settings of [training] by their names, and other tables as mappings: model={"num_layers": 4}."""
        lengths = [name for name in ("updates", "epochs", "time_budget") if settings.get(name) is not None]
        if len(lengths) > 1:
            raise SettingsError(f"{' and '.join(lengths)} exclude each other; leave out all but one")
        for name, value in settings.items():
            if name in TABLES:
                if not isinstance(value, Mapping):
                    raise TypeError(f"{name} must be a dict of settings, not {type(value).__name__}")
                self._set(name, {key: _plain(one) for key, one in value.items()})
            elif name in SHORT:
                self._set(SHORT[name], {name: _plain(value)})
            elif name in TrainingConfig.model_fields:
                self._set("training", {name: _plain(value)})
            else:
                raise SettingsError(f"unknown argument {name}{_advice(name, value)}")

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Write the lists into the folder of the new run; they are removed if it cannot be set up."""
        if not self.files:
            yield
            return
        if launched():
            raise SettingsError("several processes cannot share lists of strings; write them to files")
        check_unused(self.folder)
        if (self.folder / RECIPE).exists():
            raise CannotCreate(f"{self.folder}: already holds a run; choose another folder")
        with create_parents(self.folder / TEXTS / "texts", self.folder):
            try:
                for name, content in self.files.items():
                    with atomic_file(self.folder / TEXTS / name) as temporary:
                        temporary.write_text(content, encoding="utf-8", newline="")
                yield
            except BaseException:
                if not (self.folder / RECIPE).exists():
                    shutil.rmtree(self.folder / TEXTS, ignore_errors=True)
                raise

    def _write(self, split: str, form: str, suffix: str, content: str) -> None:
        name = f"{split}.{suffix}"
        self.files[name] = content
        self._add(split, {form: str(self.folder / TEXTS / name)})

    def _add(self, split: str, corpus: Table) -> None:
        before = self.tables.get("data", {}).get(split)
        if before is not None:
            raise SettingsError("give the training corpus once: source and target, or path, or text")
        self._set("data", {split: {name: _plain(value) for name, value in corpus.items()}})

    def _set(self, table: str, settings: Table) -> None:
        self.tables[table] = {**self.tables.get(table, {}), **settings}


def _advice(name: str, value: Any) -> str:
    if name in OTHER_NAMES:
        return f"; here it is called {OTHER_NAMES[name]}"
    table = next((table for table, config in ELSEWHERE.items() if name in config.model_fields), None)
    if table is not None:
        return f"; it is a setting of [{table}]: {table}={{'{name}': {value!r}}}"
    return suggestion(name, [*TrainingConfig.model_fields, *SHORT, *TABLES])


def _path(given: Any, name: str) -> str:
    if isinstance(given, str) and "\n" in given:
        raise TypeError(f"{name} must be a file or a list of strings, not one text; pass text.splitlines()")
    if isinstance(given, str | os.PathLike):
        return os.fsdecode(given)
    if name == "path":
        raise TypeError(f"path must be a file, not {type(given).__name__}; pass texts as source=[…] and target=[…]")
    raise TypeError(f"{name} must be a file or a list of strings, not {type(given).__name__}")


def _plain(value: Any) -> Any:
    """A setting as a recipe holds it."""
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else without_numpy(value)
