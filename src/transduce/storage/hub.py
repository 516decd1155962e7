"""Models on the Hugging Face hub: download and upload by name, through `huggingface_hub` and its cache.

Only what a model folder needs is fetched: JSON, vocabularies, safetensors. Pickles and code are never downloaded. The
library's own settings hold: HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, HF_TOKEN. Nothing here is imported before it is used,
and no name is looked up on the hub where a file or folder has it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import MissingInput, ModelFolderError, StorageError, TransduceError, one_line
from transduce.storage.atomic import atomic_folder
from transduce.storage.layout import CONFIG, MANIFEST, MODEL_CARD, SOURCE_TOKENIZER, TARGET_TOKENIZER

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "vocab.txt", "spiece.model", "source.spm", "target.spm", "target_vocab.json"),
    *("sentencepiece.bpe.model", "tokenizer.model"),
)
SMALL_FILES = (
    *(CONFIG, "generation_config.json", "model.safetensors.index.json", *TOKENIZER_FILES),
    *(f"target_tokenizer/{name}" for name in TOKENIZER_FILES),
    *(MANIFEST, MODEL_CARD, SOURCE_TOKENIZER, TARGET_TOKENIZER),
)
"""Files that say what a model is, of Hugging Face's format and of ours."""
WEIGHT_FILES = ("model.safetensors", "model-?????-of-?????.safetensors")
CACHE = "TRANSDUCE_CACHE"
"""Environment variable: the folder of converted models, by default transduce in the user's cache folder."""

_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class Snapshot(NamedTuple):
    """The downloaded files of one revision of a model."""

    path: Path
    name: str
    commit: str

    @property
    def has_weights(self) -> bool:
        """Whether there are safetensors."""
        return next(self.path.glob("*.safetensors"), None) is not None

    @property
    def is_ours(self) -> bool:
        """Whether it was pushed from transduce, as it has a manifest."""
        return (self.path / MANIFEST).is_file()


def is_hub_name(name: str | Path) -> bool:
    """Whether a name can be a model of the hub, owner/name, and is no file or folder here."""
    return _NAME.fullmatch(str(name)) is not None and not os.path.lexists(name)


def download(name: str, revision: str | None = None, weights: bool = True) -> Snapshot:
    """Download a model, or find it in the cache; without `weights`, only the small files that describe it.

    `revision` is a branch, tag or commit.
    """
    from huggingface_hub import snapshot_download
    from tqdm.auto import tqdm  # the bar of the library

    class _NoBar(tqdm):  # type: ignore[misc]
        """Shows nothing: small files, and logs."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "disable": True})

    patterns = [*SMALL_FILES, *(WEIGHT_FILES if weights else ())]
    shown = tqdm if weights and (sys.stderr.isatty() or "ipykernel" in sys.modules) else _NoBar
    with _hub_errors(name, revision):
        found = snapshot_download(
            name, revision=revision, allow_patterns=patterns, endpoint=_endpoint(), tqdm_class=shown
        )
    snapshot = Snapshot(Path(found), name, Path(found).name)
    if weights and not snapshot.has_weights:
        raise ModelFolderError(
            f"{name}: has no safetensors on the hub, and pickled weights (.bin) are never downloaded; give a revision "
            "that has them with --revision (often refs/pr/N, see the model's Community tab), or convert a copy yourself"
        )
    return snapshot


def converted_folder(snapshot: Snapshot) -> Path:
    """Return where the model folder of a snapshot is kept: one for each commit, so that it is converted once."""
    cache = os.environ.get(CACHE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transduce"
    return Path(cache) / "models" / snapshot.name.replace("/", "--") / snapshot.commit


def copy_snapshot(snapshot: Snapshot, folder: Path) -> None:
    """Copy the files of a snapshot, which are links into the download cache, to a folder of their own."""
    with atomic_folder(folder) as temporary:
        for name in (*SMALL_FILES, *(path.name for path in snapshot.path.glob("*.safetensors"))):
            if (snapshot.path / name).is_file():
                (temporary / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(snapshot.path / name, temporary / name)


def upload(
    folder: Path,
    name: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    message: str,
    token: str | None,
) -> str:
    """Upload a folder to a model of the hub, which is created if it does not exist; return its address."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=_endpoint(), token=token, library_name="transduce")
    with _hub_errors(name, revision, "uploaded"):
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, revision=revision, commit_message=message)
    return str(address)


def _endpoint() -> str | None:
    """The hub's address as the environment has it now; the library reads it only once."""
    return os.environ.get("HF_ENDPOINT") or None


@contextlib.contextmanager
def _hub_errors(name: str, revision: str | None, done: str = "downloaded") -> Iterator[None]:
    """Turn what the library raises into one sentence."""
    from huggingface_hub import constants, errors

    hub = _endpoint() or constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError:
        raise MissingInput(f"{name}: needs permission; accept its terms on {hub}, then run `hf auth login`") from None
    except errors.RepositoryNotFoundError:
        raise MissingInput(
            f"{name}: is neither a local folder nor a model on {hub}; check the name, or run `hf auth login` if it is "
            "private"
        ) from None
    except errors.RevisionNotFoundError:
        raise MissingInput(f"{name}: has no revision '{revision}' on {hub}; check its branches and tags") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        why = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else f"{hub} cannot be reached"
        raise MissingInput(
            f"{name}: is neither a local folder nor in the download cache, and {why}; connect, or give a folder"
        ) from None
    except errors.HFValidationError as error:
        raise MissingInput(f"{name}: is neither a local folder nor the name of a model ({one_line(error)})") from None
    except TransduceError:
        raise
    except errors.HfHubHTTPError.__bases__ as error:  # type: ignore[misc]  # of the HTTP client, and OSError
        kind = MissingInput if done == "downloaded" else StorageError
        raise kind(f"{name}: cannot be {done} ({hub}: {one_line(error)}); try again later") from None
