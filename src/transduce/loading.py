"""One door to every kind of model folder."""

from __future__ import annotations

from pathlib import Path

from transduce import translator
from transduce.checkpoint import load_model
from transduce.generator import Generator
from transduce.models.interface import LanguageModel
from transduce.translator import Translator


def load(folder: str | Path, *others: str | Path) -> Translator | Generator:
    """Load a run or model folder: a translator, or what goes on with a text where it holds a language model.

    Several folders answer together, by the mean of their probabilities; language models do not.
    """
    if others:
        return translator.load(folder, *others)
    contents = load_model(Path(folder))
    return Generator(contents) if isinstance(contents.model, LanguageModel) else Translator(contents)
