"""What every loaded model has: a description, a device, and ways to be saved, shared and loaded again."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeVar

import torch
from torch import nn

from transduce.errors import CannotCreate, ModelFolderError, SettingsError, brief
from transduce.inference.ensemble import Ensemble
from transduce.model_folder import ModelFolder, load_model, save_model
from transduce.models import catalog
from transduce.models.interface import Model, choose_device
from transduce.storage.hub import converted_folder, copy_snapshot, download, is_hub_name, upload
from transduce.storage.layout import MANIFEST

Task = Literal["translation", "language_modeling", "text_encoding"]
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "translation": ("a translation model", ("translate {}", "score {} --path PAIRS")),
    "language_modeling": ("a language model", ("generate {}", "score {} --text FILE")),
    "text_encoding": ("a text encoder", ("predict {}", "embed {}")),
}
"""What a folder of each task holds, and the commands for it."""
ModelT = TypeVar("ModelT", bound=nn.Module)


class Pretrained:
    """A model with its tokenizers, as a folder on disk or on the Hugging Face hub holds it."""

    model_task: ClassVar[Task]
    """The task of the folders that it is loaded from."""
    contents: ModelFolder
    """The model, its settings, tokenizers and notes."""

    def __reduce__(self) -> tuple[type[Self], tuple[ModelFolder]]:
        """Copy or pickle the model, its tokenizers and notes, for another process; the copy has the default engine."""
        return type(self), (self.contents,)

    @classmethod
    def from_pretrained(cls, name: str | Path, revision: str | None = None) -> Self:
        """Load a run or model folder, or a model of the hub that was pushed from transduce.

        `transduce.from_pretrained` loads other models of the hub, too, and returns what their task needs. `revision` is
        a branch, tag or commit of the hub.
        """
        contents = load_task(name if not is_hub_name(name) else _downloaded(str(name), revision), cls.model_task)
        if revision is not None and not is_hub_name(name):
            raise SettingsError(f"{name}: is a folder, which has no revision; leave it out")
        return cls(contents)  # type: ignore[call-arg]

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Save the model with its tokenizers in a new folder, which `transduce.load` loads; return the folder.

        With `overwrite` it may replace a model folder.
        """
        folder = Path(folder)
        if isinstance(self.contents.model, Ensemble):
            raise SettingsError("an ensemble is several models; save them one by one, they are loaded together")
        if os.path.lexists(folder) and not _is_empty(folder) and not (overwrite and (folder / MANIFEST).is_file()):
            advice = "overwrite=True replaces model folders only" if overwrite else "or pass overwrite=True"
            raise CannotCreate(f"{folder}: exists already; choose a new folder ({advice})")
        save_model(folder, self.contents, self.contents.card or _card(self.contents))
        return folder

    def save_pretrained(self, folder: str | Path) -> Path:
        """Save the model, replacing a model folder of this name; the same as `save(folder, overwrite=True)`."""
        return self.save(folder, overwrite=True)

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str = "Upload model",
        token: str | None = None,
    ) -> str:
        """Upload the model to the Hugging Face hub as owner/name and return its address.

        It is created if it does not exist. The token is that of `hf auth login`, unless one is given.
        """
        with tempfile.TemporaryDirectory() as temporary:
            folder = self.save(Path(temporary) / "model")
            return upload(folder, name, private=private, revision=revision, message=commit_message, token=token)

    def to(self, device: str | torch.device) -> Self:
        """Move the model to a device (cpu, cuda, mps, or auto), in place, and return itself."""
        target = choose_device(str(device), "the device")
        model: Model = self.contents.model
        if model.device.type != target:  # moving drops the packed weights
            model.to(target)
            if target == "cpu":
                model.freeze()
        return self

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.contents.model.device

    def _facts(self) -> Mapping[str, str]:
        """Return what describes the model, by name."""
        contents = self.contents
        source, target = (f"{tokenizer.size:,}" for tokenizer in (contents.source_tokenizer, contents.target_tokenizer))
        shared = contents.source_tokenizer is contents.target_tokenizer
        facts = {
            "model": catalog.name_of(contents.config),
            "parameters": f"{sum(weight.numel() for weight in contents.model.parameters()):,}",
            "vocabulary": source if shared else f"{source} → {target}",
            "device": str(self.device),
        }
        if isinstance(contents.model, Ensemble):
            facts["model"] = f"ensemble of {len(contents.model.members)}"
        return facts

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self._facts().items())
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        """Show a table in a notebook."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def checked_contents(contents: ModelFolder) -> ModelFolder:
    """Return the contents of a model folder; its name is an error."""
    if not isinstance(contents, ModelFolder):
        raise TypeError(f"a model is made of the contents of its folder; use transduce.load({brief(contents)})")
    return contents


def load_task(folder: str | Path, task: Task) -> ModelFolder:
    """Load a folder and check its task."""
    contents = load_model(Path(folder))
    if contents.task != task:
        holds, commands = COMMANDS[contents.task]
        use = " or ".join(f"`transduce {command.format(folder)}`" for command in commands)
        raise SettingsError(f"{folder}: holds {holds}, not {COMMANDS[task][0]}; use {use}")
    return contents


def _downloaded(name: str, revision: str | None) -> Path:
    """Return the folder of a model of the hub that has our format."""
    snapshot = download(name, revision, weights=False)
    if not snapshot.is_ours:
        raise ModelFolderError(
            f"{name}: was not pushed from transduce; `transduce.from_pretrained('{name}')` converts and loads it"
        )
    folder = converted_folder(snapshot)
    if not folder.is_dir():
        copy_snapshot(download(name, snapshot.commit), folder)
    return folder


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _card(contents: ModelFolder) -> str:
    """The card of a model that has none."""
    (verb, *_) = COMMANDS[contents.task][1]
    return "\n".join(
        [
            "---",
            "library_name: transduce",
            "---",
            "",
            f"# A {catalog.name_of(contents.config)}",
            "",
            f"{COMMANDS[contents.task][0].capitalize()}. Use it: `transduce {verb.format('THIS_FOLDER')}`.",
            "",
        ]
    )
