"""Models by name: a folder of ours, a Hugging Face folder, a GGUF file, or owner/name on the Hugging Face hub.

A model of the hub is converted once for each commit and kept in the cache folder (`storage.hub`).
"""

from __future__ import annotations

from pathlib import Path

from transduce.errors import SettingsError
from transduce.inference.generator import Generator
from transduce.inference.load import load
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.interop.import_model import check_no_revision, checked_download, convert, read_foreign
from transduce.storage.hub import converted_folder, is_hub_name
from transduce.storage.layout import CONFIG, MANIFEST, MODEL


def from_pretrained(
    name: str | Path,
    revision: str | None = None,
    *,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Translator | Generator | TextEncoder:
    """Load a model of the Hugging Face hub by its name, or a folder of any supported format.

    A name such as "Helsinki-NLP/opus-mt-en-de" is downloaded (safetensors and vocabularies, never pickles or code),
    converted, and kept in the cache; `revision` is a branch, tag or commit. With HF_HUB_OFFLINE=1 only the cache is
    used. The languages are the defaults of a multilingual model.
    """
    place = model_folder(name, revision)
    if place is None:
        contents = read_foreign(Path(name), source_language, target_language)
        return _MODELS[contents.task](contents)
    model = load(place)
    if source_language or target_language:
        if not isinstance(model, Translator):
            raise SettingsError(f"{name}: is not a translation model; leave out the languages")
        model.languages.select(target_language, source_language)
    return model


_MODELS: dict[str, type[Translator] | type[Generator] | type[TextEncoder]] = {
    "translation": Translator,
    "language_modeling": Generator,
    "text_encoding": TextEncoder,
}


def model_folder(name: str | Path, revision: str | None = None) -> Path | None:
    """Return the model or run folder that a name means, downloaded and converted if it is a model of the hub.

    None for a file or folder of another format.
    """
    if not is_hub_name(name):
        check_no_revision(name, revision)
        folder = Path(name)
        is_foreign = folder.suffix == ".gguf" or (
            (folder / CONFIG).is_file() and not (folder / MANIFEST).exists() and not (folder / MODEL).exists()
        )
        return None if is_foreign else folder
    snapshot = checked_download(str(name), revision)
    folder = converted_folder(snapshot)
    if not folder.is_dir():
        convert(snapshot, folder)
    return folder
