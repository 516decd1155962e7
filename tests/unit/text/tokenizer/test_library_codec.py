"""A foreign `tokenizer.json`: the library's own tokens, but special pieces are never found in text."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.unit.sentencepiece_models import CORPUS, texts
from transduce.errors import ModelFolderError
from transduce.text.tokenizer.base import wrap_errors
from transduce.text.tokenizer.library_codec import LibraryCodec

SPECIAL = ["<pad>", "</s>", "<unk>", "<mask>"]


def unigram() -> tuple[tokenizers.Tokenizer, Any]:
    library = tokenizers.Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    return library, trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>")


def byte_bpe() -> tuple[tokenizers.Tokenizer, Any]:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return library, trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet)


def word_piece() -> tuple[tokenizers.Tokenizer, Any]:
    """With white space alone between words, so that a special piece is a word like others."""
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.WordPiece()
    return library, trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL)


def words() -> tuple[tokenizers.Tokenizer, Any]:
    library = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return library, trainers.WordLevelTrainer(special_tokens=SPECIAL)


MAKERS = {"unigram": unigram, "byte bpe": byte_bpe, "word piece": word_piece, "words": words}


@functools.cache
def content(name: str) -> str:
    library, trainer = MAKERS[name]()
    library.train_from_iterator([*CORPUS, "<b>[x]</b> /s"] * 3, trainer)
    library.add_tokens([AddedToken("[quote]", normalized=False), AddedToken("fox", single_word=True)])
    library.add_special_tokens(["<late>"])
    library.add_tokens(["[later]"])
    end = library.token_to_id("</s>")
    library.post_processor = processors.TemplateProcessing(
        single="<pad> $A </s>", special_tokens=[("<pad>", 0), ("</s>", end)]
    )
    library.enable_truncation(5)
    library.enable_padding(length=7)
    return str(library.to_str())


def both(name: str) -> tuple[LibraryCodec, tokenizers.Tokenizer]:
    theirs = tokenizers.Tokenizer.from_str(content(name))
    theirs.no_truncation()
    theirs.no_padding()
    return LibraryCodec(json.loads(content(name))), theirs


@pytest.mark.parametrize("name", MAKERS)
def test_texts_have_the_tokens_of_the_library_whole_and_without_a_frame(name: str) -> None:
    codec, theirs = both(name)
    odd = [text for text in texts() if not any(piece in text for piece in SPECIAL)]
    odd += ["a [quote] b", "[quote][later]", "the fox, foxes fox", "[later]x"]
    for text, tokens in zip(odd, codec.encode_batch(odd), strict=True):
        assert tokens == theirs.encode(text, add_special_tokens=False).ids, ascii(text)


@pytest.mark.parametrize("name", MAKERS)
def test_tokens_have_the_text_of_the_library_without_special_ones(name: str) -> None:
    codec, theirs = both(name)
    for text in texts():
        tokens = theirs.encode(text).ids
        assert codec.decode(tokens) == theirs.decode(tokens, skip_special_tokens=True), ascii(text)
    every = sorted(codec.names)
    assert codec.decode(every) == theirs.decode(every, skip_special_tokens=True)
    assert codec.decode([10**6, -1]) == ""


@pytest.mark.parametrize("name", MAKERS)
def test_special_pieces_are_not_found_in_text(name: str) -> None:
    codec, theirs = both(name)
    typed = [*SPECIAL, "<late>"]
    for text in [*typed, *(f"a {piece} b{piece}" for piece in typed), " ".join(typed)]:
        (tokens,) = codec.encode_batch([text])
        unknown = theirs.token_to_id("<unk>")
        assert tokens and codec.special.isdisjoint(set(tokens) - {unknown}), text
    if name in ("unigram", "byte bpe"):
        assert codec.decode(codec.encode_batch(["a </s> b"])[0]) == "a </s> b"
    assert codec.names[theirs.token_to_id("</s>")] == "</s>"


@pytest.mark.parametrize("name", MAKERS)
def test_names_are_those_of_the_library_and_the_frame_is_seen(name: str) -> None:
    codec, theirs = both(name)
    assert codec.names == {token: piece for piece, token in theirs.get_vocab(with_added_tokens=True).items()}
    assert {codec.names[token] for token in codec.special} == {*SPECIAL, "<late>"}
    assert codec.frame == ([0], [theirs.token_to_id("</s>")])


def test_what_the_file_does_not_call_special_can_be_declared_special() -> None:
    codec = LibraryCodec(json.loads(content("unigram")), special=["[quote]", "never"])
    assert codec.special == both("unigram")[0].special | {both("unigram")[1].token_to_id("[quote]")}
    assert codec.decode(codec.encode_batch(["[quote]"])[0]) == "[quote]"
    assert codec.decode([both("unigram")[1].token_to_id("[quote]")]) == ""


@pytest.mark.parametrize("name", MAKERS)
def test_a_codec_made_again_of_its_table_is_the_same(name: str) -> None:
    codec = LibraryCodec(json.loads(content(name)), special=["[quote]"])
    again = LibraryCodec.from_table(json.loads(json.dumps(codec.to_table())))
    assert again.to_table() == codec.to_table() and again.names == codec.names and again.special == codec.special
    assert again.encode_batch(texts()) == codec.encode_batch(texts())


@pytest.mark.parametrize("kind", [models.WordPiece, models.WordLevel])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_piece_without_letters_is_not_what_unknown_words_become(kind: Any, place: int) -> None:
    """A blank line in `vocab.txt`, before or behind the unknown piece."""
    pieces = ["<pad>", "<unk>", "fox", "dog"]
    pieces.insert(place, "")
    library = tokenizers.Tokenizer(kind({piece: token for token, piece in enumerate(pieces)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    codec = LibraryCodec(json.loads(library.to_str()), SPECIAL)
    text = "fox cat dog"
    assert codec.encode_batch([text]) == [library.encode(text).ids] == [[*map(pieces.index, ("fox", "<unk>", "dog"))]]
    assert codec.decode([pieces.index("fox"), place, pieces.index("dog")]) == "fox dog"
    assert codec.names == dict(enumerate(pieces)) and codec.unknown == pieces.index("<unk>")


def test_where_in_a_text_tokens_stand() -> None:
    codec, theirs = both("word piece")
    tokens, places = codec.encode_with_offsets("The Quick fox")
    assert tokens == theirs.encode("The Quick fox", add_special_tokens=False).ids
    assert places[0][0] == 0 and places[-1] == (10, 13)


def test_pieces_of_bytes_are_shown_as_the_text_that_they_are() -> None:
    codec, _ = both("byte bpe")
    assert codec.show("Ġthe") == " the" and codec.show("æĿ±") == "東" and codec.show("æĿ") == "<0xE6><0x9D>"
    assert both("unigram")[0].show("▁the") == "▁the"


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[], Any]:
    def make() -> Any:
        table = json.loads(content(name))
        change(table)
        return table

    return make


ADDED = {"id": 9999, "content": "x y", "special": False, "lstrip": False, "rstrip": False, "normalized": False}

BAD: dict[str, Callable[[], Any]] = {
    "nothing": dict,
    "a list": list,
    "no model": changed("unigram", lambda file: file.pop("model")),
    "no vocabulary": changed("unigram", lambda file: file["model"].pop("vocab")),
    "an empty one": changed("unigram", lambda file: file["model"].update(vocab=[])),
    "a number for a piece": changed("unigram", lambda file: file["model"]["vocab"].append([7, 0.0])),
    "a text for a score": changed("unigram", lambda file: file["model"]["vocab"].append(["x", "y"])),
    "three parts": changed("unigram", lambda file: file["model"]["vocab"].append(["x", 0.0, 0.0])),
    "an unknown that is a text": changed("unigram", lambda file: file["model"].update(unk_id="<unk>")),
    "an unknown beyond": changed("unigram", lambda file: file["model"].update(unk_id=10**6)),
    "a token that is half": changed("byte bpe", lambda file: file["model"]["vocab"].update(half=0.5)),
    "a token below zero": changed("byte bpe", lambda file: file["model"]["vocab"].update(below=-1)),
    "a token beyond all": changed("byte bpe", lambda file: file["model"]["vocab"].update(beyond=10**12)),
    "a token twice": changed("byte bpe", lambda file: file["model"]["vocab"].update(again=5)),
    "a piece twice": changed("unigram", lambda file: file["model"]["vocab"].append(["▁", -1.0])),
    "merges of unknowns": changed("byte bpe", lambda file: file["model"].update(merges=[["q", "zzz"]])),
    "added pieces in a heap": changed("byte bpe", lambda file: file.update(added_tokens={"x": 1})),
    "an added piece without a token": changed("byte bpe", lambda file: file["added_tokens"].append({"content": "x"})),
    "an added piece of two names": changed("byte bpe", lambda file: file["added_tokens"].append({**ADDED, "id": 5})),
    "a hundred thousand added pieces": changed(
        "byte bpe",
        lambda file: file.update(added_tokens=[{**ADDED, "id": 9999 + n, "content": f"<{n}>"} for n in range(10**5)]),
    ),
    "another model": changed("words", lambda file: file["model"].update(type="Transformer")),
    "a broken pattern": changed(
        "words", lambda file: file.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("}, "invert": False})
    ),
    "a lone surrogate": changed("byte bpe", lambda file: file["model"]["vocab"].update({"\ud800": 9999})),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_rejected_with_one_sentence(name: str) -> None:
    what = "a tokenizer that can be read"
    with pytest.raises(ModelFolderError) as refusal, wrap_errors("mt/tokenizer.json", what, "download it again"):
        LibraryCodec(BAD[name]())
    assert str(refusal.value).startswith("mt/tokenizer.json: is not a tokenizer that can be read (")
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 400


def test_the_table_of_bad_files_starts_from_sound_ones() -> None:
    for name in MAKERS:
        assert LibraryCodec(changed(name, lambda file: None)()).names
