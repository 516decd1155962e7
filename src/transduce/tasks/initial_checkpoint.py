"""What a run starts from instead of chance: a model folder or another run, and what follows from it for a recipe.

The model's settings and tokenizers are the folder's; how to learn is chosen for a model that knows something already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transduce.config import Table, merge, read_toml
from transduce.data.config import PlainTextConfig
from transduce.data.prepared import Prepared
from transduce.errors import DataError, MissingInput, ModelFolderError, SettingsError
from transduce.model_folder import Description, describe_model, find_model
from transduce.models import catalog
from transduce.storage.layout import DATA, MANIFEST, MODEL, RECIPE
from transduce.storage.manifest import sha256
from transduce.tasks.catalog import load_prepared
from transduce.tasks.translation.preparation import Given
from transduce.text.language import Spoken, spoken
from transduce.text.tokenizer import AnyTokenizer, is_joint
from transduce.text.tokenizer.tokenizer import WITH_FOLDER, TokenizerConfig

# How well a vocabulary fits a text: tokens per word, and how much of the text it cannot name.

_BYTE = re.compile("<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Coverage:
    """Counts over some text."""

    words: int
    tokens: int
    unknown: int
    """Tokens that stand for what the vocabulary lacks."""
    broken: int
    """Tokens that are bytes of a character, not characters: how lossless kinds spell what they lack."""

    @property
    def tokens_per_word(self) -> float:
        """The more, the worse the pieces fit; for words of one's own language 1.1 to 1.5 are usual."""
        return self.tokens / max(1, self.words)

    def __str__(self) -> str:
        """Say it in a few words."""
        said = f"{self.tokens_per_word:.2f} tokens per word"
        for count, what in ((self.unknown, "unknown"), (self.broken, "single bytes of a character")):
            if count:
                said += f", {count / max(1, self.tokens):.2%} of them {what}"
        return said


def coverage(tokenizer: AnyTokenizer, texts: Iterable[str]) -> Coverage:
    """Count what a tokenizer makes of texts; words are what stands between spaces."""
    lines = list(texts)
    rows = tokenizer.encode_batch(lines)
    shown = tokenizer.pieces(range(tokenizer.size))
    bytes_ = {token for token, piece in enumerate(shown) if _BYTE.search(piece)}
    return Coverage(
        words=sum(len(line.split()) for line in lines),
        tokens=sum(map(len, rows)),
        unknown=sum(map(tokenizer.count_unknown, rows)),
        broken=sum(token in bytes_ for row in rows for token in row),
    )


LOOKED_AT = 10_000
"""Pairs by which a vocabulary is judged."""
SMALL_FILE = 16 * 2**20
"""Bytes up to which a file's hash is checked when only settings are wanted; whoever loads weights checks them all."""
OF_A_HEAD = ("head", "next_sentence", "num_labels", "label_tokens")
"""Settings of what a reader says, which is new with every task."""
KEPT_HABITS = ("label_smoothing", "bpe_dropout", "r_drop", "ema_decay", "weight_decay", "optimizer", "betas")
"""Settings of the run that made a model which are as good for learning on."""


@dataclass(frozen=True)
class Origin:
    """A folder to start from, without its weights."""

    name: str
    """As a person named it."""
    found: Description
    recipe: Table
    """The tables of the run that made it; empty where that is not known."""
    data: Path | None
    """The prepared corpus of that run, if it is still there."""

    @property
    def joint(self) -> bool:
        """Whether one tokenizer serves both sides."""
        return is_joint(self.found.source_tokenizer, self.found.target_tokenizer)

    @property
    def given(self) -> Given:
        """Its tokenizers, for preparing a corpus."""
        source, target, tags = self.found.source_tokenizer, self.found.target_tokenizer, self.spoken.tags
        if tags is None:
            return Given(source, target)
        return Given(source.bare(), source.bare() if source is target else target.bare(), tags)

    @property
    def spoken(self) -> Spoken:
        """The languages that it can be asked for."""
        found = self.found
        return spoken(found.notes, found.source_tokenizer, found.target_tokenizer, self.name)


def open_origin(name: str) -> Origin:
    """Open a model folder or a run to start from."""
    found = describe_model(Path(name), SMALL_FILE)
    run = found.place.parent if found.place.name == MODEL and (found.place.parent / RECIPE).is_file() else None
    data = None if run is None or not (run / DATA / MANIFEST).is_file() else run / DATA
    return Origin(name, found, {} if run is None else read_toml(run / RECIPE), data)


def given_tokenizers(config: TokenizerConfig) -> Given | None:
    """Open the tokenizers that a recipe names; None where it wants new ones."""
    return None if config.folder is None else open_origin(config.folder).given


def fingerprint(name: str) -> str:
    """Return the SHA-256 of a folder's manifest: what a run that started there depends on."""
    return sha256(find_model(Path(name)) / MANIFEST)


def settled(origin: Origin, tables: Table, where: str, prepared: bool = False) -> Table:
    """Fill a recipe's tables in with what the origin decides; what disagrees with it is refused.

    A corpus that was prepared before has its tokenizers already: `prepared` leaves [tokenizer] as it is.
    """
    notes = origin.found.notes
    pair = {"source_language": origin.spoken.of, "target_language": origin.spoken.to}
    languages = {name: language for name, language in pair.items() if language is not None}
    search = notes.get("search")
    tables = merge({"data": languages}, tables)
    if "search" not in tables and isinstance(search, dict):
        tables["search"] = search
    tables["model"] = _agreed(origin, tables.get("model", {}), where)
    if not prepared:
        tables["tokenizer"] = _tokenizer(origin, tables.get("tokenizer", {}), where)
    return tables


def _agreed(origin: Origin, given: Table, where: str) -> Table:
    """Return the origin's [model] with other rates of dropout, if they were given; nothing else may differ."""
    mine = origin.found.config
    theirs = catalog.read_model_table(merge({"name": catalog.name_of(mine)}, given), f"{where}: model")
    if type(theirs) is not type(mine):
        raise SettingsError(
            f"{where}: [model] is a {catalog.name_of(theirs)}, but {origin.name} holds a {catalog.name_of(mine)}; "
            "leave the table out"
        )
    named = type(mine).model_fields if "preset" in given else given.keys() & type(mine).model_fields.keys()
    changes = {name: getattr(theirs, name) for name in named if getattr(theirs, name) != getattr(mine, name)}
    for name, value in changes.items():
        if not name.endswith("dropout") and name not in OF_A_HEAD:
            raise SettingsError(
                f"{where}: model.{name} = {value!r}, but the model in {origin.name} has {getattr(mine, name)!r}; leave "
                "it out: only rates of dropout can be changed"
            )
    agreed = {"name": catalog.name_of(mine), **mine.but(**changes).to_table()}
    return {name: value for name, value in agreed.items() if name not in OF_A_HEAD or name in given}


def _tokenizer(origin: Origin, given: Table, where: str) -> Table:
    for name in given:
        if name not in WITH_FOLDER and name in TokenizerConfig.model_fields:
            raise SettingsError(
                f"{where}: tokenizer.{name}: the tokenizers of {origin.name} are kept; leave it out "
                "(--extend-vocabulary N adds pieces)"
            )
    return {**given, "folder": given.get("folder", origin.name), "joint": origin.joint}


def fit(origin: Origin, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Say how well the origin's vocabulary fits new text, beside the text that it was made for.

    Plain text comes as pairs without a source, and a run that learned from it keeps none of it.
    """
    sides = (("source", origin.found.source_tokenizer), ("target", origin.found.target_tokenizer))
    new = _coverages(origin, pairs)
    before = None if origin.data is None else _prepared(origin.data)
    own = (
        None if before is None or isinstance(before.data, PlainTextConfig) else _coverages(origin, before.train.texts())
    )
    reasons = []
    for side, (name, tokenizer) in enumerate(sides):
        if not new[side].words:
            continue
        beside = "" if own is None else f" (in {origin.data}: {own[side]})"
        reasons.append(f"the {tokenizer.size:,} {name} tokens of {origin.name} are kept: {new[side]}{beside}")
    return reasons


def _prepared(folder: Path) -> Prepared | None:
    """The corpus that a run learned from, if it is there still and whole; it is wanted for a comparison only."""
    try:
        return load_prepared(folder)
    except (DataError, MissingInput, ModelFolderError):
        return None


def _coverages(origin: Origin, pairs: Iterable[tuple[str, str]]) -> tuple[Coverage, Coverage]:
    looked = list(islice(pairs, LOOKED_AT))
    source = coverage(origin.found.source_tokenizer, (source for source, _ in looked))
    return source, coverage(origin.found.target_tokenizer, (target for _, target in looked))


def peak_rate(origin: Origin) -> tuple[float, str]:
    """Return the learning rate for going on from an origin, and why: a tenth of what made the model.

    A model that was itself started from another was made with such a rate already.
    """
    before = origin.recipe.get("training", {})
    rate, warmup = before.get("learning_rate"), before.get("warmup", 1)
    width = int(getattr(origin.found.config, "model_dim", 0) or getattr(origin.found.config, "hidden_dim", 512))
    if not isinstance(rate, float | int):
        usual = 2e-3 if width <= 128 else 1e-3 if width <= 256 else 7e-4
        return usual / 10, f"a tenth of what is usual for a width of {width}"
    if before.get("schedule", "noam") == "noam":
        rate = rate / math.sqrt(width * max(1, warmup))
    if before.get("initial_checkpoint"):
        return float(rate), f"as {origin.name} learned with when it was itself started from another"
    return rate / 10, f"a tenth of the {rate:.2g} that {origin.name} learned with"


def habits(origin: Origin) -> Table:
    """Settings of how the origin learned that are kept."""
    before = origin.recipe.get("training", {})
    return {name: before[name] for name in KEPT_HABITS if name in before}
