"""Load model folders: a Translator, Generator or TextEncoder, by the task that the folder states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from transduce.errors import SettingsError
from transduce.inference.ensemble import Ensemble
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder, load_model

Task = Literal["translation", "language_modeling", "text_encoding"]
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "translation": ("a translation model", ("translate {}", "score {} --path PAIRS")),
    "language_modeling": ("a language model", ("generate {}", "score {} --text FILE")),
    "text_encoding": ("a text encoder", ("predict {}", "embed {}")),
}
"""What a folder of each task holds, and the commands for it."""


def load(folder: str | Path, *others: str | Path) -> Translator | Generator | TextEncoder:
    """Load a run or model folder as what its task needs; several folders become an ensemble of translation models."""
    if others:
        return load_translator(folder, *others)
    contents = load_model(Path(folder))
    if contents.task == "text_encoding":
        return TextEncoder(contents)
    return Generator(contents) if contents.task == "language_modeling" else Translator(contents)


def load_translator(folder: str | Path, *others: str | Path) -> Translator:
    """Load a translation model; several become an ensemble, which averages their probabilities."""
    contents, *more = [_load_task(name, "translation") for name in (folder, *others)]
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
    return Generator(_load_task(folder, "language_modeling"))


def load_text_encoder(folder: str | Path) -> TextEncoder:
    """Load a text encoder."""
    return TextEncoder(_load_task(folder, "text_encoding"))


def _load_task(folder: str | Path, task: Task) -> ModelFolder:
    """Load a folder and check its task."""
    contents = load_model(Path(folder))
    if contents.task != task:
        holds, commands = COMMANDS[contents.task]
        use = " or ".join(f"`transduce {command.format(folder)}`" for command in commands)
        raise SettingsError(f"{folder}: holds {holds}, not {COMMANDS[task][0]}; use {use}")
    return contents
