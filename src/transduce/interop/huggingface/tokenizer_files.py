"""Read vocabulary files of tokenizers into codecs: one function for each file format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from transduce.config import Table, counted
from transduce.errors import ModelFolderError, brief
from transduce.interop.huggingface.folder import HuggingFaceFolder
from transduce.storage.untrusted import MAX_JSON_BYTES
from transduce.text.tokenizer.base import file_limit
from transduce.text.tokenizer.imported import SettingsFile
from transduce.text.tokenizer.library_codec import LibraryCodec, RenumberedCodec, checked_table
from transduce.text.tokenizer.sentencepiece import MAX_BYTES, read_sentencepiece

TOKENIZER, VOCABULARY, MERGES, WORDS = "tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"
ADDED = "added_tokens.json"

SpecialToken = tuple[str, int]
"""A special token that is added to a text: piece and id."""


def library_codec(settings: TokenizerSettings) -> LibraryCodec:
    """Read `tokenizer.json`."""
    return LibraryCodec(settings.table(TOKENIZER, settings.limit), set(settings.special()))


def bert_codec(settings: TokenizerSettings) -> LibraryCodec:
    """Read `vocab.txt`, one piece per line; how BERT splits words is in its settings."""
    lines = _lines(settings, WORDS)
    vocabulary = {piece: token for token, piece in enumerate(lines)}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=settings.piece("unk")))
    strip_accents = settings.get("strip_accents")
    made.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.flag("tokenize_chinese_chars", default=True),
        strip_accents=strip_accents if isinstance(strip_accents, bool) else None,
        lowercase=settings.flag("do_lower_case", default=True),
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##")
    return _from_library(made, settings, ["cls"], ["sep"])


def gpt2_codec(settings: TokenizerSettings) -> LibraryCodec:
    """Read `vocab.json` and `merges.txt`."""
    lines = _lines(settings, MERGES)
    merges = [_merge(line) for line in lines if line and not line.startswith("#version")]
    made = tokenizers.Tokenizer(models.BPE(table_of(settings, VOCABULARY), merges))
    space = settings.flag("add_prefix_space", default=False)
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space)
    made.decoder = decoders.ByteLevel()
    before, behind = ([role] if settings.flag(f"add_{role}_token", default=False) else [] for role in ("bos", "eos"))
    return _from_library(made, settings, before, behind)


def sentencepiece_codec(
    settings: TokenizerSettings,
    name: str,
    vocabulary: Mapping[str, int] | None = None,
    further: Mapping[str, int] | None = None,
    trim: bool = False,
) -> RenumberedCodec:
    """Read a SentencePiece model; see `RenumberedCodec` for the rest."""
    where = settings.path(name)
    content = settings.read(name, min(MAX_BYTES, settings.limit))
    codec = RenumberedCodec(content, vocabulary, further, trim, where)
    added = {token["content"]: token["id"] for token in _added(settings) if token["id"] not in codec.names}
    if not added:
        return codec
    if unknown := added.keys() - set(settings.special()):
        raise ValueError(f"the piece {brief(min(unknown))} was added to {name}, which needs a {TOKENIZER}")
    return RenumberedCodec(content, vocabulary, {**(further or {}), **added}, trim, where)


def count_pieces(settings: TokenizerSettings, name: str) -> int:
    """Return the number of pieces of a SentencePiece model."""
    return len(read_sentencepiece(settings.read(name, min(MAX_BYTES, settings.limit)), settings.path(name)).pieces)


def table_of(settings: TokenizerSettings, name: str) -> dict[str, int]:
    """Read a vocabulary: piece -> token."""
    return checked_table(settings.table(name, settings.limit))


def _lines(settings: TokenizerSettings, name: str) -> list[str]:
    """Return the lines of a text file."""
    text = settings.read(name, settings.limit).decode("utf-8")
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def _merge(line: str) -> tuple[str, str]:
    first, _, second = line.partition(" ")
    if not first or not second or " " in second:
        raise ValueError(f"{MERGES} has the line {brief(line)}, which is not a pair of pieces")
    return first, second


def _from_library(
    made: tokenizers.Tokenizer, settings: TokenizerSettings, before: Sequence[str], behind: Sequence[str]
) -> LibraryCodec:
    """Return a codec of a library tokenizer built from older files, with its special and added tokens.

    Special tokens of the roles `before` and `behind` are added to a text.
    """
    content = json.loads(made.to_str())
    special = {*settings.special(), *settings.defaults.values()}
    known = content["model"]["vocab"]
    added, tokens = _added(settings), set(known.values())
    content["added_tokens"] = [token for token in added if token["id"] not in tokens]
    names = {token["content"]: token["id"] for token in added} | known
    framing = [
        [(settings.piece(role) or role, settings.token(names, role)) for role in side] for side in (before, behind)
    ]
    content["post_processor"] = template(*framing)
    return LibraryCodec(content, special)


def template(before: Sequence[SpecialToken], behind: Sequence[SpecialToken]) -> Table:
    """Return the post-processor of a `tokenizer.json` that adds special tokens to a text or a pair."""

    def sequence(name: str, number: int) -> Table:
        return {"Sequence": {"id": name, "type_id": number}}

    def pieces(framing: Sequence[SpecialToken], number: int) -> list[Table]:
        return [{"SpecialToken": {"id": piece, "type_id": number}} for piece, _ in framing]

    single = [*pieces(before, 0), sequence("A", 0), *pieces(behind, 0)]
    tokens = {piece: {"id": piece, "ids": [token], "tokens": [piece]} for piece, token in (*before, *behind)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", 1), *pieces(behind, 1)],
        "special_tokens": tokens,
    }


def _added(settings: TokenizerSettings) -> list[Table]:
    """Return the added tokens in the form of `tokenizer.json`."""
    special = set(settings.special())
    listed = settings.get("added_tokens_decoder", {})
    added = settings.table(ADDED) if settings.has(ADDED) else {}
    found = [{"content": piece, "id": token, "special": piece in special} for piece, token in added.items()]
    for token, entry in listed.items() if isinstance(listed, dict) else ():
        if isinstance(entry, dict) and (number := counted(token)) is not None:
            found.append({"special": False, **entry, "id": number})
    by_token = {token["id"]: token for token in found if isinstance(token.get("content"), str)}
    return sorted(by_token.values(), key=lambda token: int(token["id"]))


# Settings of a tokenizer in a Hugging Face folder: its special tokens and flags.
#
# They are spread over several files: `tokenizer_config.json` and the older `special_tokens_map.json` name the special
# tokens, `config.json` and `generation_config.json` have their ids (of one side if there are two). Names go first.

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
FILES: tuple[SettingsFile, ...] = (TOKENIZER_CONFIG, SPECIAL_TOKENS)
"""Files that an imported tokenizer keeps, to be exported again."""
GENERATION = "generation_config.json"

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
ADDITIONAL = ("extra_special_tokens", "additional_special_tokens")


class TokenizerSettings:
    """The settings of one folder's tokenizer."""

    limit = file_limit(None)
    """Largest vocabulary file that is read; see `for_vocabulary`."""

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

    def for_vocabulary(self, size: int) -> Self:
        """Bound the sizes of files by that of the model's vocabulary."""
        self.limit = file_limit(size)
        return self

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
