"""Settings of a tokenizer in a Hugging Face folder: its special tokens and flags.

They are spread over several files: `tokenizer_config.json` and the older `special_tokens_map.json` name the special
tokens, `config.json` and `generation_config.json` have their ids (of one side if there are two). Names go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from transduce.config import Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.folder import MAX_JSON_BYTES, HuggingFaceFolder
from transduce.text.tokenizer.imported import SettingsFile

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
FILES: tuple[SettingsFile, ...] = (TOKENIZER_CONFIG, SPECIAL_TOKENS)
"""Files that an imported tokenizer keeps, to be exported again."""
GENERATION = "generation_config.json"

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
ADDITIONAL = ("extra_special_tokens", "additional_special_tokens")


class TokenizerSettings:
    """The settings of one folder's tokenizer."""

    def __init__(self, folder: HuggingFaceFolder, defaults: Mapping[str, str], inside: str = "") -> None:
        """`defaults` are the special tokens of a family by role, for folders that do not name them.

        `inside` is the subfolder of the tokenizer's own files, if there are two tokenizers.
        """
        self.folder, self.defaults, self._inside = folder, defaults, inside
        self.files = {name: self.table(name) for name in FILES if self.has(name)}
        generation = folder.table(GENERATION) if folder.find(GENERATION) is not None else {}
        self._numbers = {**generation, **{name: value for name, value in folder.config.items() if value is not None}}
        own = self.files.get(TOKENIZER_CONFIG, {})
        if "auto_map" in own:
            raise ModelFolderError(f"{self.path(TOKENIZER_CONFIG)}: needs custom code (auto_map), which is never run")
        older = {} if "added_tokens_decoder" in own else self.files.get(SPECIAL_TOKENS, {})
        self._table = {**own, **older}

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return str(self.folder.path)

    def path(self, name: str) -> str:
        """One of the tokenizer's files, for messages."""
        return str(self.folder.path / self._inside / name)

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        return self.folder.find(f"{self._inside}{name}") is not None

    def read(self, name: str, limit: int) -> bytes:
        """Return the contents of a file, which must exist and have at most `limit` bytes."""
        return self.folder.read(f"{self._inside}{name}", limit)

    def table(self, name: str, limit: int = MAX_JSON_BYTES) -> Table:
        """Return the JSON object in a file."""
        return self.folder.table(f"{self._inside}{name}", limit)

    def get(self, name: str, default: Any = None) -> Any:
        """Return one of the tokenizer's settings, unchecked."""
        value = self._table.get(name)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise ModelFolderError(f"{self.where}: {name} must be true or false, not {brief(value)}")
        return value

    def text(self, name: str) -> str | None:
        """Return a string, None if there is none."""
        value = self.get(name)
        return value if isinstance(value, str) else None

    def integer(self, name: str) -> int | None:
        """Return an integer of the model's config, None if there is none; the first of a list."""
        value = self._numbers.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        return value if type(value) is int and value >= 0 else None

    def piece(self, role: str) -> str | None:
        """Return the special token of a role: bos, eos, unk, sep, pad, cls, mask."""
        return _content(self.get(f"{role}_token")) or self.defaults.get(role)

    def special(self) -> Iterator[str]:
        """Yield every token that is marked special."""
        for role in ROLES:
            if (piece := _content(self.get(f"{role}_token"))) is not None:
                yield piece
        for name in ADDITIONAL:
            several = self.get(name, ())
            for one in several.values() if isinstance(several, dict) else several if isinstance(several, list) else ():
                if (piece := _content(one)) is not None:
                    yield piece
        added = self.get("added_tokens_decoder", {})
        for one in added.values() if isinstance(added, dict) else ():
            if isinstance(one, dict) and one.get("special") is True and (piece := _content(one)) is not None:
                yield piece

    def token(self, names: Mapping[str, int], *roles: str) -> int:
        """Return the id of the first of the roles that has one, by its piece or else by the model's config.

        `names` is the vocabulary: piece -> token.
        """
        for role in roles:
            found = names.get(self.piece(role) or "", self.integer(f"{role}_token_id"))
            if found is not None:
                return found
        raise ModelFolderError(f"{self.where}: has no {roles[0]}_token; is a file missing?")


def _content(value: Any) -> str | None:
    """Return the text of a special token, which is a string or an object with settings."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None
