"""A folder into what can be asked: a translator, or a reader."""

from __future__ import annotations

from pathlib import Path

from transduce.checkpoint import load_model
from transduce.errors import SettingsError
from transduce.models.interface import Reader
from transduce.reader import ReaderModel
from transduce.translator import Translator
from transduce.translator import load as load_translator


def load(folder: str | Path, *others: str | Path) -> Translator | ReaderModel:
    """Load a run or model folder; several translators then answer together, by the mean of their probabilities."""
    if others:
        return load_translator(folder, *others)
    contents = load_model(Path(folder))
    return ReaderModel(contents) if isinstance(contents.model, Reader) else Translator(contents)


def load_reader(folder: str | Path) -> ReaderModel:
    """Load a folder that must hold a reader."""
    try:
        return ReaderModel(load_model(Path(folder)))
    except SettingsError as error:
        raise SettingsError(f"{folder}: {error}") from None
