"""Every kind of tokenizer: lossless where it says so, safe from what text may spell, readable in pictures."""

from __future__ import annotations

import functools
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from transduce.errors import DataError, SettingsError
from transduce.text.lines import normalise, read_lines
from transduce.text.tokenizer.special import KINDS, LOSSLESS, byte_symbols
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

FLORES = Path(__file__).parents[3] / "../shared/data/flores200-devtest-multiscript"

TEXTS = [
    "the cat sat on the mat , and the dog sat on the cat .",
    "Die Größe der Städte wächst , und die Flüsse werden größer .",
    "नमस्ते दुनिया , यह एक परीक्षा है .",
    "東京は日本の首都です。大阪は日本の都市です。",
    "spelled <s> and </s> and <pad> and <unk> and <0x41> again , <s> </s> <pad> <unk> <0x41>",
]

AWKWARD = [
    "",
    " ",
    "   ",
    " leading",
    "trailing ",
    "  two  spaces  ",
    "\t tab\t",
    "</s>",
    "<s><pad></s>",
    " <s> <unk> ",
    r"\<s> \\</s>",
    "<0x41><0xFF>",
    "▁ Ġ ## ##a",
    "👩‍👩‍👧‍👦 🇩🇪 ❤️",
    "\x00\x01\x7f\x85\u2028\u00a0\u3000\ufeff",
    "e\u0323\u0307",
    "ابجد \u200f‮ עברית",
    "\U0010ffff\ue000\ufffd",
    "don't I'LL",
]


@functools.cache
def trained(kind: str) -> Tokenizer:
    return train_tokenizer(kind, TEXTS * 3, TokenizerConfig(vocab_size=503))


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
@given(text=st.text() | st.text("<>/spadunk0x41 \\\t▁Ġe\u0301ब", max_size=40))
@settings(max_examples=300)
def test_lossless_kinds_give_back_any_normalised_text(kind, text):
    text = normalise(text)
    assert trained(kind).decode(trained(kind).encode(text)) == text


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
@pytest.mark.parametrize("text", AWKWARD)
def test_lossless_kinds_give_back_awkward_text(kind, text):
    text = normalise(text)
    tokens = trained(kind).encode(text)
    assert trained(kind).decode(tokens) == text
    assert not {trained(kind).pad, trained(kind).start, trained(kind).end} & set(tokens)


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
def test_lossless_kinds_give_back_twenty_languages(kind):
    if not FLORES.is_dir():
        pytest.skip("needs shared/data/flores200-devtest-multiscript beside the project; put it there")
    lines = [line for path in sorted(FLORES.glob("*.gz")) for line in list(read_lines(path))[:211]]
    assert len(lines) == 20 * 211
    tokenizer = trained(kind)  # which has seen four of the scripts
    assert [tokenizer.decode(tokens) for tokens in tokenizer.encode_batch(lines)] == lines


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_and_are_never_read_from_text(kind):
    tokenizer = trained(kind)
    assert (tokenizer.pad, tokenizer.start, tokenizer.end) == tokenizer.specials == (0, 1, 2)
    assert tokenizer.unknown == (None if kind in LOSSLESS else 3)
    for text in ["<pad>", "<s>", "</s>", "a <s> b </s>", "x</s>", "</s>x", "<s></s>", "<pad>\t</s>\u3000<s>"]:
        assert not {0, 1, 2} & set(tokenizer.encode(text)), text


def test_words_that_spell_specials_are_words_like_any_other():
    tokenizer = trained("word")
    for text in ["<s> </s> <pad> <unk>", "and <s> and"]:
        assert tokenizer.count_unknown(tokenizer.encode(text)) == 0
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.pieces(tokenizer.encode("and </s>")) == ["and", "</s>"]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.text(max_size=20), max_size=5))
@settings(max_examples=30)
def test_a_batch_is_its_texts_one_by_one_and_stays_within_the_vocabulary(kind, texts):
    tokenizer = trained(kind)
    batch = tokenizer.encode_batch(texts)
    assert batch == [tokenizer.encode(text) for text in texts]
    assert all(0 <= token < tokenizer.size for tokens in batch for token in tokens)
    assert all(len(tokenizer.pieces(tokens)) == len(tokens) for tokens in batch)


@pytest.mark.parametrize("kind", KINDS)
def test_unnormalised_text_is_the_same_text(kind):
    text = "Die Größe der Städte"
    assert trained(kind).encode(unicodedata.normalize("NFD", text)) == trained(kind).encode(text)


@pytest.mark.parametrize("kind", KINDS)
def test_half_characters_are_a_data_error(kind):
    for encode in (trained(kind).encode, lambda text: trained(kind).encode_batch(["fine", text])):
        with pytest.raises(DataError, match="lone surrogate"):
            encode("a\ud83db")


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_skips_start_end_and_padding(kind):
    tokenizer = trained(kind)
    tokens = tokenizer.encode("the cat sat")
    framed = [tokenizer.start, *tokens, tokenizer.end, tokenizer.pad, tokenizer.pad]
    assert tokenizer.decode(framed) == tokenizer.decode(tokens) == "the cat sat"
    assert tokenizer.pieces(framed)[0] == "<s>" and tokenizer.pieces(framed)[-2:] == ["<pad>", "<pad>"]


@pytest.mark.parametrize("kind", ["wordpiece", "word"])
def test_unknown_words_are_counted_and_stay_visible(kind):
    tokenizer = trained(kind)
    tokens = tokenizer.encode("the Ж cat ЖЖ")
    assert tokenizer.count_unknown(tokens) == 2
    assert tokenizer.decode(tokens) == "the <unk> cat <unk>"
    assert tokenizer.pieces(tokens) == ["the", "<unk>", "cat", "<unk>"]


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
def test_lossless_kinds_know_everything(kind):
    assert trained(kind).count_unknown(trained(kind).encode("the Ж cat ЖЖ")) == 0


@given(st.text())
def test_a_byte_token_is_its_byte_plus_three(text):
    assert trained("byte").encode(text) == [byte + 3 for byte in normalise(text).encode()]


def test_character_tokens_are_characters_and_bytes_for_the_unseen():
    tokenizer = trained("character")
    assert tokenizer.pieces(tokenizer.encode("cat 東Ж")) == ["c", "a", "t", "▁", "東", "<0xD0>", "<0x96>"]


@given(st.lists(st.sampled_from(["the", "cat", "sat", "on", "mat", "dog"])))
def test_word_tokens_are_what_split_gives(words):
    tokenizer = trained("word")
    assert tokenizer.pieces(tokenizer.encode("  " + " \t ".join(words))) == words
    assert tokenizer.decode(tokenizer.encode(" ".join(words))) == " ".join(words)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_word_has_the_same_pieces_at_the_start_as_within(kind):
    tokenizer = trained(kind)
    assert tokenizer.encode("cat cat") == tokenizer.encode("cat") * 2


def test_vowel_signs_do_not_end_a_word():
    tokenizer = train_tokenizer("bpe", ["नमस्ते दुनिया"] * 7, TokenizerConfig(vocab_size=503))
    assert tokenizer.pieces(tokenizer.encode("नमस्ते दुनिया")) == ["▁नमस्ते", "▁दुनिया"]


def test_pieces_show_spaces_as_marks_and_halves_of_characters_as_bytes():
    tokenizer = train_tokenizer("bpe", ["cat cat 東"], TokenizerConfig(vocab_size=503))
    assert tokenizer.pieces(tokenizer.encode("cat 東 ")) == ["▁cat", "▁", "<0xE6>", "<0x9D>", "<0xB1>", "▁"]
    assert trained("byte").pieces(trained("byte").encode("ü <0x41>")) == ["<0xC3>", "<0xBC>", "▁", *"<0x41>"]


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
def test_broken_bytes_decode_to_replacement_characters(kind):
    tokenizer = trained(kind)
    first_byte, *_ = tokenizer.encode("\U0001f980")[-4:]
    assert "\ufffd" in tokenizer.decode([first_byte])


@pytest.mark.parametrize("kind", KINDS)
def test_a_very_long_line_is_encoded(kind):
    for text in ("a" * 100_003, "the cat " * 12_503):
        tokens = trained(kind).encode(text)
        assert kind not in LOSSLESS or trained(kind).decode(tokens) == text


def test_byte_symbols_are_those_of_the_library():
    assert sorted(byte_symbols()) == sorted(ByteLevel.alphabet())
    assert ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é\t")[0][0] == "".join(
        byte_symbols()[byte] for byte in "é\t".encode()
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            {"source_kind": "character", "target_kind": "word"},
            "both character and word",
        ),
        ({"target_kind": "word"}, "both bpe and word"),
        ({"vocab_size": 258}, "vocab_size = 258 is too small"),
        ({"kind": "word", "vocab_size": 4}, "vocab_size = 4 is too small"),
        ({"joint": False, "kind": "word", "source_kind": "unigram", "vocab_size": 100}, "too small"),
        ({"vocab_size": 0}, "vocab_size = 0"),
        ({"vocab_size": 10**30}, "vocab_size = 1"),
        ({"min_frequency": 0}, "min_frequency = 0"),
        ({"min_frequency": 10**30}, "min_frequency = 1"),
        ({"kind": "sentencepiece"}, "kind = 'sentencepiece'"),
        ({"vocab": 8000}, "did you mean 'vocab_size'"),
    ],
)
def test_settings_that_make_no_sense_are_rejected(table, words):
    with pytest.raises(SettingsError) as refusal:
        TokenizerConfig.from_table(table, "[tokenizer]")
    assert words in str(refusal.value)


def test_kinds_per_side_override_the_common_kind():
    assert TokenizerConfig(kind="byte", vocab_size=7).kinds == ("byte", "byte")
    assert TokenizerConfig(joint=False, kind="word", source_kind="character").kinds == ("character", "word")
    assert TokenizerConfig(source_kind="unigram", target_kind="unigram").kinds == ("unigram", "unigram")


@pytest.mark.parametrize("kind", sorted(LOSSLESS))
@pytest.mark.parametrize("text", ["the fox  jumps", " over\tthe dog ", "東京 is▁schön äöü\u00a0x", ""])
def test_tokens_know_the_word_they_are_of(kind, text):
    known = trained(kind)
    tokens = known.encode(text)
    numbers = known.words(tokens)
    words: dict[int, list[int]] = {}
    for token, number in zip(tokens, numbers, strict=True):
        if number is not None:
            words.setdefault(number, []).append(token)
    assert [known.decode(several).strip() for _, several in sorted(words.items())] == text.split()


def test_bytes_that_are_no_text_are_no_spaces_either():
    known = trained("character")
    of = {piece: token for token, piece in enumerate(known.vocabulary)}
    for spelled in (["<0x0D>", "<0xFF>"], ["<0x1F>"], ["<0xE2>", "<0x20>", "<0x0D>"], ["<0xC3>", "<0xA4>"]):
        tokens = [*known.encode("cat"), *(of[piece] for piece in spelled), *known.encode("sat")]
        numbers = [number for number in known.words(tokens) if number is not None]
        assert max(numbers) + 1 == len(known.decode(tokens).split())


def test_words_of_models_that_know_words():
    for kind in ("word", "wordpiece"):
        known = trained(kind)
        text = known.decode(known.encode("the fox, jumps"))
        numbers = known.words(known.encode("the fox, jumps"))
        assert max(numbers) + 1 == len(text.split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["the cat (sat), and  the\tdog.", " 東京は <s> größe…", "don't ((the)) cat", "cat \x01 dog", ""]
)
def test_tokens_know_the_word_of_the_very_text_that_they_are_of(kind, text):
    known = trained(kind)
    tokens, numbers, words = known.encode(text), known.words_of(text), text.split()
    assert len(numbers) == len(tokens)
    for number, word in enumerate(words):
        own = [token for token, its in zip(tokens, numbers, strict=True) if its == number]
        spelled = "".join(known.decode([token]).removeprefix("##").strip() for token in own)
        if kind in LOSSLESS:
            spelled = known.decode(own).strip()
        assert spelled == word or known.unknown in own or word == "\x01"
    assert {number for number in numbers if number is not None} <= set(range(len(words)))
