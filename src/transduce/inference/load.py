"""One door to every kind of model folder."""

from __future__ import annotations

from pathlib import Path

from transduce.errors import SettingsError
from transduce.inference import translator
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.model_folder import load_model
from transduce.models.interface import EncoderModel, LanguageModel


def load(folder: str | Path, *others: str | Path) -> Translator | Generator | TextEncoder:
    """Load a run or model folder: a translator, what goes on with a text where it holds a language model, or what
    answers about texts where it holds a reader.

    Several folders answer together, by the mean of their probabilities; only translators do.
    """
    if others:
        return translator.load(folder, *others)
    contents = load_model(Path(folder))
    if isinstance(contents.model, EncoderModel):
        return TextEncoder(contents)
    return Generator(contents) if isinstance(contents.model, LanguageModel) else Translator(contents)


def load_reader(folder: str | Path) -> TextEncoder:
    """Load a folder that must hold a reader."""
    contents = load_model(Path(folder))
    if isinstance(contents.model, LanguageModel):
        raise SettingsError(
            f"{folder}: holds a language model, which is not asked about texts; use `transduce generate {folder}`"
        )
    try:
        return TextEncoder(contents)
    except SettingsError as error:
        raise SettingsError(f"{folder}: {error}") from None
