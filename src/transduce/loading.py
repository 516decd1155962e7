"""One door to every kind of model folder."""

from __future__ import annotations

from pathlib import Path

from transduce import translator
from transduce.checkpoint import load_model
from transduce.errors import SettingsError
from transduce.generator import Generator
from transduce.models.interface import LanguageModel, Reader
from transduce.reader import ReaderModel
from transduce.translator import Translator


def load(folder: str | Path, *others: str | Path) -> Translator | Generator | ReaderModel:
    """Load a run or model folder: a translator, what goes on with a text where it holds a language model, or what
    answers about texts where it holds a reader.

    Several folders answer together, by the mean of their probabilities; only translators do.
    """
    if others:
        return translator.load(folder, *others)
    contents = load_model(Path(folder))
    if isinstance(contents.model, Reader):
        return ReaderModel(contents)
    return Generator(contents) if isinstance(contents.model, LanguageModel) else Translator(contents)


def load_reader(folder: str | Path) -> ReaderModel:
    """Load a folder that must hold a reader."""
    contents = load_model(Path(folder))
    if isinstance(contents.model, LanguageModel):
        raise SettingsError(
            f"{folder}: holds a language model, which is not asked about texts; use `transduce generate {folder}`"
        )
    try:
        return ReaderModel(contents)
    except SettingsError as error:
        raise SettingsError(f"{folder}: {error}") from None
