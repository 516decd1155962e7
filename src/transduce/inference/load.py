"""Load model folders: a Translator, Generator or TextEncoder, by the task that the folder states."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from transduce.errors import SettingsError
from transduce.inference.ensemble import Ensemble
from transduce.inference.generator import Generator
from transduce.inference.pretrained import load_task
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.model_folder import load_model


def load(
    folder: str | Path, *others: str | Path, device: str | torch.device = "cpu"
) -> Translator | Generator | TextEncoder:
    """Load a run or model folder as what its task needs; several folders become an ensemble of translation models.

    `device` is as for the method `to`: cpu, cuda, mps or auto.
    """
    for one in (folder, *others):
        if not isinstance(one, str | os.PathLike):
            raise TypeError(f"folder must be the path of a run or model folder, not {type(one).__name__}")
    if others:
        return load_translator(folder, *others).to(device)
    contents = load_model(Path(folder))
    if contents.task == "text_encoding":
        return TextEncoder(contents).to(device)
    return (Generator(contents) if contents.task == "language_modeling" else Translator(contents)).to(device)


def load_translator(folder: str | Path, *others: str | Path) -> Translator:
    """Load a translation model; several become an ensemble, which averages their probabilities."""
    contents, *more = [load_task(name, "translation") for name in (folder, *others)]
    for name, other in zip(others, more, strict=True):
        for side in ("source_tokenizer", "target_tokenizer"):
            if getattr(contents, side).to_json() != getattr(other, side).to_json():
                raise SettingsError(
                    f"{name}: its {side.replace('_', ' ')} is not the one of {folder}; train the models of an ensemble "
                    "on one prepared corpus (`transduce prepare`, then `train --prepared`)"
                )
    if more:
        contents = replace(contents, model=Ensemble([contents.transducer, *(other.transducer for other in more)]))
    return Translator(contents)


def load_generator(folder: str | Path) -> Generator:
    """Load a language model."""
    return Generator(load_task(folder, "language_modeling"))


def load_text_encoder(folder: str | Path) -> TextEncoder:
    """Load a text encoder."""
    return TextEncoder(load_task(folder, "text_encoding"))
