"""Hostile tokenizers, in our own folders and in Hugging Face's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture.hostile.case import IMPORT, TRANSLATE, Case, Damage, fifo, file, link, replaced, table
from transduce.storage.atomic import read_json

TOKENIZER = "tokenizer.json"
Change = Callable[[dict[str, Any]], object]


def own(change: Change) -> Case:
    """A tokenizer that claims to be trained here."""
    return Case(TRANSLATE, table(TOKENIZER, change), TOKENIZER)


def theirs(change: Change) -> Case:
    """The tokenizer of a folder to import."""
    return Case(IMPORT, table(TOKENIZER, change, "foreign"), "foreign")


def imported(change: Change) -> Case:
    """A tokenizer in our folder that claims to be imported."""

    def damage(place: Path) -> None:
        content = read_json(place / "native" / TOKENIZER)
        size = len(content["model"]["vocab"])
        change(content)
        known = {"family": "gpt2", "size": size, "pad": 0, "start": 1, "end": 2}
        file(TOKENIZER, json.dumps({"imported": 1, "settings": known, "codec": {"tokenizer": content, "special": []}}))(
            place
        )

    return Case(TRANSLATE, damage, TOKENIZER)


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def bomb(content: dict[str, Any]) -> None:
    """Four replacements, each of one character by hundreds: 300^4 for one."""
    steps = [replace({"String": letter}, after * 300) for letter, after in ("ab", "bc", "cd", "de")]
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, *steps]}


def empty_matches(content: dict[str, Any]) -> None:
    """A pattern that matches between all characters, thirty times: the text doubles with each."""
    steps = [replace({"Regex": ""}, "x")] * 30
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, *steps]}


def decoder_bomb(content: dict[str, Any]) -> None:
    steps = [replace({"String": letter}, after * 300) for letter, after in ("ab", "bc", "cd", "de")]
    content["decoder"] = {"type": "Sequence", "decoders": [*content["decoder"]["decoders"], *steps]}


def split(pattern: str) -> Change:
    """Split by a regular expression before all else."""

    def change(content: dict[str, Any]) -> None:
        own = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        rest = content["pre_tokenizer"].get("pretokenizers", [content["pre_tokenizer"]])
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [own, *rest]}

    return change


def many_added(content: dict[str, Any]) -> None:
    """200,000 added tokens, which the library looks for in every text."""
    size = len(content["model"]["vocab"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] += [
        {"id": size + number, "content": f"<extra_id_{number}>", "special": True, **flags} for number in range(200_000)
    ]


def many_found(content: dict[str, Any]) -> None:
    many_added(content)
    for token in content["added_tokens"]:
        token["special"] = False


def cyclic(content: dict[str, Any]) -> None:
    """Merges of a piece with nothing, and of pieces that lead back to themselves."""
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    vocabulary[""] = vocabulary.pop("".join(merges[-1]))
    content["model"]["merges"] = [["a", ""], ["", "a"], *merges[:-1]]


def unknown_merges(content: dict[str, Any]) -> None:
    content["model"]["merges"] = [["a", "b"], ["ab", "a"], ["aba", "ab"]]


def frame(content: dict[str, Any]) -> None:
    """A post-processor that adds a million tokens to each text."""
    special = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special] * 300_000 + [{"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
    }


def long_prefix(content: dict[str, Any]) -> None:
    content["model"]["end_of_word_suffix"] = "x" * 10**6


def word_pieces(content: dict[str, Any]) -> None:
    """WordPiece with words of any length: quadratic time."""
    vocabulary = content["model"]["vocab"]
    model = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": vocabulary}
    content["model"] = {**model, "max_input_chars_per_word": 2**60}
    vocabulary["<unk>"] = vocabulary.pop("fox", len(vocabulary))


def giant(folder: str) -> Damage:
    """A vocabulary of three million pieces for a model of 300."""
    return file(
        TOKENIZER,
        lambda: json.dumps(
            {
                "version": "1.0",
                "added_tokens": [],
                "normalizer": None,
                "pre_tokenizer": None,
                "post_processor": None,
                "decoder": None,
                "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {f"w{n}": n for n in range(3_000_000)}},
            }
        ).encode(),
        folder,
    )


PANICS = "(a+)+$"
"""The library gives up on `aaa…!` with a panic."""

TOKENIZERS: dict[str, Case] = {
    "own: normalizer that multiplies": own(bomb),
    "own: pattern of nothing, thirty times": own(empty_matches),
    "own: decoder that multiplies": own(decoder_bomb),
    "own: regex that panics": own(split(PANICS)),
    "own: 200,000 added tokens": own(many_added),
    "own: cyclic merges": own(cyclic),
    "own: vocabulary of three million": Case(TRANSLATE, giant("native"), TOKENIZER),
    "own: tokenizer is a pipe": Case(TRANSLATE, replaced(TOKENIZER, fifo), TOKENIZER),
    "own: nested 100,000 deep": Case(
        TRANSLATE, file(TOKENIZER, b'{"normalizer":' * 100_000 + b"1" + b"}" * 100_000), TOKENIZER
    ),
    "imported: normalizer that multiplies": imported(bomb),
    "imported: pattern of nothing, thirty times": imported(empty_matches),
    "imported: decoder that multiplies": imported(decoder_bomb),
    "imported: regex that panics": imported(split(PANICS)),
    "foreign: normalizer that multiplies": theirs(bomb),
    "foreign: pattern of nothing, thirty times": theirs(empty_matches),
    "foreign: decoder that multiplies": theirs(decoder_bomb),
    "foreign: regex that panics": theirs(split(PANICS)),
    "foreign: regex of overlapping alternatives": theirs(split("(a|a|aa)*$")),
    "foreign: regex that refers back": theirs(split(r"(a*)\1\1\1b")),
    "foreign: regex of 10^9 repetitions": theirs(split("((((x{1000}){1000}){1000}){1000})")),
    "foreign: regex that does not compile": theirs(split("(a")),
    "foreign: 200,000 added tokens": theirs(many_found),
    "foreign: cyclic merges": theirs(unknown_merges),
    "foreign: frame of 300,000 tokens": theirs(frame),
    "foreign: suffix of a million characters": theirs(long_prefix),
    "foreign: WordPiece of endless words": theirs(word_pieces),
    "foreign: vocabulary of three million": Case(IMPORT, giant("foreign"), TOKENIZER),
    "foreign: tokenizer is a device": Case(IMPORT, replaced(TOKENIZER, link("/dev/zero"), "foreign"), TOKENIZER),
}
