"""SentencePiece models without SentencePiece: the same pieces and texts as its own, and no harm from bad files."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sentencepiece_models import CORPUS, texts, trained
from transduce.errors import ModelFolderError
from transduce.text.tokenizer.sentencepiece import PieceType, read_sentencepiece
from transduce.text.tokenizer.sentencepiece_codec import MAX_EXACT, SentencePieceCodec

SYMBOLS = ["<sep>", "fox jumps", "ing", "☃"]
MODELS = {
    f"{kind}, {rule}{', bytes' if fallback else ''}": {
        "model_type": kind,
        "normalization_rule_name": rule,
        "byte_fallback": fallback,
        "vocab_size": 600 if fallback else 350,
    }
    for kind in ("unigram", "bpe")
    for rule in ("nmt_nfkc", "identity")
    for fallback in (False, True)
} | {
    "case folded": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf"},
    "as Llama's": {
        "model_type": "bpe",
        "normalization_rule_name": "identity",
        "byte_fallback": True,
        "vocab_size": 600,
        "remove_extra_whitespaces": False,
    },
    "no space put first": {"model_type": "bpe", "add_dummy_prefix": False},
    "spaces as they are": {"model_type": "unigram", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "unigram with symbols": {"model_type": "unigram", "user_defined_symbols": ",".join(SYMBOLS)},
    "bpe with symbols": {"model_type": "bpe", "user_defined_symbols": ",".join(SYMBOLS), "control_symbols": "<ctl>"},
    "as T5's": {"model_type": "unigram", "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
}


@functools.cache
def both(name: str) -> tuple[SentencePieceCodec, sentencepiece.SentencePieceProcessor]:
    content = trained(**MODELS[name])
    codec = SentencePieceCodec(read_sentencepiece(content, name))
    return codec, sentencepiece.SentencePieceProcessor(model_proto=content)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_read_is_what_sentencepiece_reads(name: str) -> None:
    codec, theirs = both(name)
    model, numbers = codec.model, range(theirs.get_piece_size())
    assert model.pieces == [theirs.id_to_piece(number) for number in numbers]
    assert model.scores == [theirs.get_score(number) for number in numbers]
    assert model.unknown == theirs.unk_id()
    assert model.of_type(PieceType.BYTE) == [number for number in numbers if theirs.is_byte(number)]
    assert model.of_type(PieceType.CONTROL) == [number for number in numbers if theirs.is_control(number)]
    assert len(model.of_type(PieceType.USER_DEFINED)) == (len(SYMBOLS) if "symbols" in name else 0)


@pytest.mark.parametrize("name", MODELS)
def test_texts_have_the_same_pieces(name: str) -> None:
    codec, theirs = both(name)
    odd = [*texts(), "a<sep>b", " <sep> ", "fox jumps fox  jumps", "sing singing", "\u2581<sep>", "<ctl>x", "☃ <sep>☃☃"]
    for text, tokens in zip(odd, codec.encode_batch(odd), strict=True):
        assert codec.prepare(text) == theirs.normalize(text), ascii(text)
        assert tokens == theirs.encode(text), ascii(text)


@pytest.mark.parametrize("name", MODELS)
def test_pieces_have_the_same_text(name: str) -> None:
    codec, theirs = both(name)
    chance = random.Random(7)
    rows = [theirs.encode(text) for text in texts()]
    rows += [chance.choices(range(len(codec.model.pieces)), k=chance.randrange(9)) for _ in range(300)]
    rows += [chance.choices(range(9), k=5) for _ in range(50)]
    for row in rows:
        assert codec.decode([codec.model.pieces[token] for token in row]) == theirs.decode(row), row
    strangers = ["\u2581Hund", "nobody", "\u2581knows"]
    assert codec.decode(strangers) == theirs.decode(strangers)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_at_all_has_the_same_tokens(name: str, text: str) -> None:
    codec, theirs = both(name)
    assert codec.encode_batch([text]) == [theirs.encode(text)]


def test_equally_good_pieces_are_ranked_as_by_sentencepiece() -> None:
    """Of "000", "0 00" and "00 0" have the same score but for how sums are rounded."""
    codec, theirs = both("unigram, nmt_nfkc")
    runs = [letter * times for letter in ("0", ".", "!", "-", "ha", "a") for times in range(1, 40)]
    runs = [f"{before}{run}" for run in runs for before in ("", "In ", "and then there were 5")]
    found = codec.encode_batch(runs)
    assert found == theirs.encode(runs)
    by_library = [codec._library.encode(codec.prepare(run)).ids for run in runs]
    assert found != [[codec._numbers[token] for token in tokens] for tokens in by_library]
    assert codec.encode_batch(["0" * (MAX_EXACT + 1)])[0]


def test_a_long_text_takes_no_long_time() -> None:
    for name in ("unigram, nmt_nfkc", "bpe, nmt_nfkc, bytes"):
        begun = time.process_time()
        for text in ("x" * 100_000, "0" * 100_000, "ab " * 30_000, "☃" * 100_000, "e\u0301" * 50_000):
            assert both(name)[0].encode_batch([text])[0]
        assert time.process_time() - begun < 10


def field(number: int, content: bytes) -> bytes:
    """A field of a message, by hand."""
    return bytes([number << 3 | 2]) + size(len(content)) + content


def size(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + size(rest) if rest else bytes([low])


def piece(text: bytes, kind: int = 1, score: bytes = b"\0\0\x80\xbf") -> bytes:
    return field(1, field(1, text) + b"\x15" + score + b"\x18" + size(kind))


SOUND = piece(b"<unk>", 2) + piece(b"a") + piece(b"b")
BPE = field(2, b"\x18\x02")


def rules(units: list[int], written: bytes = b"x\0") -> bytes:
    table = b"".join(unit.to_bytes(4, "little") for unit in units)
    return field(3, field(2, len(table).to_bytes(4, "little") + table + written))


def test_spaces_that_are_not_marked_stay_spaces() -> None:
    """No option of the trainer asks for it, but a later setting of a file goes over an earlier one."""
    content = trained(model_type="unigram") + field(3, b"\x28\x00")
    codec, theirs = SentencePieceCodec(read_sentencepiece(content, "x")), sentencepiece.SentencePieceProcessor()
    theirs.load_from_serialized_proto(content)
    assert not codec.model.escape_whitespaces
    for text in texts():
        assert codec.prepare(text) == theirs.normalize(text), ascii(text)
        assert codec.encode_batch([text]) == [theirs.encode(text)], ascii(text)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "0 unknown pieces"),
    "a PNG": (lambda: b"\x89PNG\r\n\x1a\n", "SentencePiece model"),
    "a cut file": (lambda: trained(model_type="bpe")[:-1], "that are left"),
    "a field without end": (lambda: b"\x0a" + b"\xff" * 20, "a varint does not end"),
    "a field of 2 GiB": (lambda: b"\x0a\xff\xff\xff\xff\x07", "a field of 2,147,483,647 bytes"),
    "a group": (lambda: b"\x0b", "unknown wire type 3"),
    "a number for a piece": (lambda: b"\x08\x01", "a number instead of bytes"),
    "no unknown": (lambda: piece(b"a"), "0 unknown pieces"),
    "two unknowns": (lambda: SOUND + piece(b"c", 2), "2 unknown pieces"),
    "a piece twice": (lambda: SOUND + piece(b"a"), "it has the piece 'a' twice"),
    "an empty piece": (lambda: SOUND + piece(b""), "a piece has 0 bytes"),
    "a giant piece": (lambda: SOUND + piece(b"x" * 9999), "a piece has 9,999 bytes"),
    "a piece that is no text": (lambda: SOUND + piece(b"\xff"), "a text in it is not UTF-8"),
    "half a character": (lambda: SOUND + piece("\ud800".encode("utf-8", "surrogatepass")), "is not UTF-8"),
    "a type of its own": (lambda: SOUND + piece(b"c", 99), "unknown type 99"),
    "a type below all": (lambda: SOUND + piece(b"c", 0), "unknown type 0"),
    "a score that is none": (lambda: SOUND + piece(b"c", 1, b"\0\0\xc0\x7f"), "score nan"),
    "an endless score": (lambda: SOUND + piece(b"c", 1, b"\0\0\x80\xff"), "score -inf"),
    "a text for a score": (lambda: SOUND + field(1, field(1, b"c") + field(2, b"no")), "lacks its text, score or type"),
    "nothing but the unknown": (lambda: piece(b"<unk>", 2), "no normal pieces"),
    "words": (lambda: SOUND + field(2, b"\x18\x03"), "model type 3"),
    "spaces behind": (lambda: SOUND + field(2, b"\xc0\x01\x01"), "treat_whitespace_as_suffix"),
    "text changed afterwards": (lambda: SOUND + field(5, field(2, b"xxxx")), "denormalizer"),
    "pieces taken out": (lambda: SOUND + BPE + piece(b"c", 5), "with unused pieces"),
    "bytes of no use": (lambda: SOUND + piece(b"<0x00>", 6), "byte_fallback is off"),
    "too few bytes": (lambda: SOUND + field(2, b"\x98\x02\x01") + piece(b"<0x00>", 6), "not the 256 from <0x00>"),
    "rules cut short": (
        lambda: SOUND + field(3, field(2, b"\xff\xff\xff\x7f" + b"0" * 9)),
        "normalization rules are truncated",
    ),
    "odd rules": (lambda: SOUND + field(3, field(2, b"\x05\0\0\0" + b"0" * 9)), "normalization rules are truncated"),
    "a rule out of its table": (lambda: SOUND + rules([0, 0x80000007]), "rule points outside its table"),
    "a rule without an end": (lambda: SOUND + rules([0, 0x80000000], b"x" * 9), "a normalization rule is truncated"),
    "a rule of half a character": (lambda: SOUND + rules([0, 0x80000001], "é\0".encode()), "a normalization rule"),
    "rules that are no text": (lambda: SOUND + rules([0], b"\xff\0"), "a text in it is not UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_rejected_with_one_sentence(name: str) -> None:
    content, reason = BAD[name]
    with pytest.raises(ModelFolderError) as refusal:
        read_sentencepiece(content(), "mt/source.spm")
    assert str(refusal.value).startswith("mt/source.spm: is not a supported SentencePiece model (")
    assert reason in str(refusal.value) and "\n" not in str(refusal.value) and len(str(refusal.value)) < 200


def test_the_table_of_bad_files_starts_from_a_sound_one() -> None:
    for content in (SOUND, SOUND + BPE, SOUND + rules([0])):
        assert SentencePieceCodec(read_sentencepiece(content, "sound")).encode_batch(["ab"])


def test_damaged_files_are_rejected_or_read_and_nothing_else() -> None:
    """Bits flipped, bytes left out and put in, hundreds of times."""
    chance = random.Random(3)
    sound = [trained(model_type="unigram"), trained(model_type="bpe", normalization_rule_name="identity")]
    read = 0
    for _ in range(300):
        content = bytearray(chance.choice(sound))
        place = chance.randrange(min(len(content), 12_000))
        content[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        try:
            codec = SentencePieceCodec(read_sentencepiece(bytes(content), "damaged"))
        except ModelFolderError:
            continue
        read += 1
        for tokens in codec.encode_batch(CORPUS):
            codec.decode([codec.model.pieces[token] for token in tokens])
    assert 0 < read < 300


def test_rules_that_go_in_a_circle_come_to_an_end() -> None:
    """A trie whose nodes are their own children: every text is a beginning of a rule."""
    units = [(place & 0xFF) | 1 << 8 | place << 10 for place in range(256)]
    codec = SentencePieceCodec(read_sentencepiece(SOUND + rules(units), "circle"))
    assert codec.encode_batch(["ab" * 5000])
