"""What a folder of Hugging Face's says about its tokenizer beside the pieces: names and numbers of special ones.

The same things stand in many places: `tokenizer_config.json` and the older `special_tokens_map.json` have names,
`config.json` and `generation_config.json` have numbers, of one side's table where there are two. Names go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from transduce.config import Table
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.folder import MAX_JSON_BYTES, ForeignFolder
from transduce.text.tokenizer.imported import SettingsFile

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
FILES: tuple[SettingsFile, ...] = (TOKENIZER_CONFIG, SPECIAL_TOKENS)
"""Settings that an imported tokenizer keeps, to be written again."""
GENERATION = "generation_config.json"

NAMED = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
FURTHER = ("extra_special_tokens", "additional_special_tokens")


class TokenizerSettings:
    """The settings of one folder's tokenizer."""

    def __init__(self, folder: ForeignFolder, usual: Mapping[str, str], inside: str = "") -> None:
        """`usual` are the special pieces of a family by their roles, for folders that do not name them.

        The tokenizer's own files stand `inside` the folder, in one of their own where there are two tokenizers.
        """
        self.folder, self.usual, self._inside = folder, usual, inside
        self.files = {name: self.table(name) for name in FILES if self.has(name)}
        generation = folder.table(GENERATION) if folder.find(GENERATION) is not None else {}
        self._numbers = {**generation, **{name: value for name, value in folder.config.items() if value is not None}}
        own = self.files.get(TOKENIZER_CONFIG, {})
        if "auto_map" in own:
            raise ModelFolderError(
                f"{self.path(TOKENIZER_CONFIG)}: names code of its author's that has to be run (auto_map), "
                "which is never done"
            )
        older = {} if "added_tokens_decoder" in own else self.files.get(SPECIAL_TOKENS, {})
        self._table = {**own, **older}

    @property
    def where(self) -> str:
        """How a refusal calls the folder."""
        return str(self.folder.path)

    def path(self, name: str) -> str:
        """How a refusal calls one of the tokenizer's files."""
        return str(self.folder.path / self._inside / name)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return self.folder.find(f"{self._inside}{name}") is not None

    def read(self, name: str, limit: int) -> bytes:
        """Return what a file holds, which must be there and have at most `limit` bytes."""
        return self.folder.read(f"{self._inside}{name}", limit)

    def table(self, name: str, limit: int = MAX_JSON_BYTES) -> Table:
        """Return the JSON object in a file."""
        return self.folder.table(f"{self._inside}{name}", limit)

    def get(self, name: str, otherwise: Any = None) -> Any:
        """One of the tokenizer's settings, as it stands there."""
        value = self._table.get(name)
        return otherwise if value is None else value

    def flag(self, name: str, otherwise: bool) -> bool:
        """Yes or no."""
        value = self.get(name, otherwise)
        if not isinstance(value, bool):
            raise ModelFolderError(f"{self.where}: {name} should be true or false, not {brief(value)}")
        return value

    def text(self, name: str) -> str | None:
        """A word, None where there is none."""
        value = self.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        """A number of the model's own settings, None where there is none; of several the first."""
        value = self._numbers.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        return value if type(value) is int and value >= 0 else None

    def piece(self, role: str) -> str | None:
        """The special piece that has a role: bos, eos, unk, sep, pad, cls, mask."""
        return _content(self.get(f"{role}_token")) or self.usual.get(role)

    def special(self) -> Iterator[str]:
        """Every piece that is called special."""
        for role in NAMED:
            if (piece := _content(self.get(f"{role}_token"))) is not None:
                yield piece
        for name in FURTHER:
            several = self.get(name, ())
            for one in several.values() if isinstance(several, dict) else several if isinstance(several, list) else ():
                if (piece := _content(one)) is not None:
                    yield piece
        added = self.get("added_tokens_decoder", {})
        for one in added.values() if isinstance(added, dict) else ():
            if isinstance(one, dict) and one.get("special") is True and (piece := _content(one)) is not None:
                yield piece

    def token(self, names: Mapping[str, int], *roles: str) -> int:
        """The token of a role, by its name or else by the model's settings; that of the next role where it has none.

        `names` are the tokens of pieces.
        """
        for role in roles:
            found = names.get(self.piece(role) or "", self.number(f"{role}_token_id"))
            if found is not None:
                return found
        raise ModelFolderError(f"{self.where}: does not say which token is its '{roles[0]}'; is a file missing?")


def _content(value: Any) -> str | None:
    """The text of a special piece, which is written plainly or with settings of its own."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None
