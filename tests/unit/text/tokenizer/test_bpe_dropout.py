"""BPE-dropout: the paper's distribution, a function of its key alone, and never another text."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.errors import DataError, SettingsError
from transduce.text.lines import normalise, read_lines
from transduce.text.tokenizer import bpe_dropout
from transduce.text.tokenizer.bpe_dropout import BpeDropout
from transduce.text.tokenizer.special import KINDS
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

FLORES = Path(__file__).parents[3] / "../shared/data/flores200-devtest-multiscript"

TEXTS = [
    "the cat sat on the mat , and the dog sat on the cat .",
    "Die Größe der Städte wächst , und die Flüsse werden größer .",
    "नमस्ते दुनिया , यह एक परीक्षा है .",
    "東京は日本の首都です。大阪は日本の都市です。",
    "spelled <s> and </s> and <pad> , in 2017 and 2018 , don't 👩‍👩‍👧‍👦 👩‍👩‍👧‍👦",
]

HOSTILE = [
    "",
    " ",
    "  two  spaces  ",
    "\t tab\n\r\n",
    "</s>",
    "<s><pad></s> <unk>",
    "▁ Ġ ## @@ </w>",
    "👩‍👩‍👧‍👦 🇩🇪 ❤️",
    "\x00\x01\x7f\x85\u2028\u00a0\u3000\ufeff",
    "e\u0323\u0307",
    "ابجد \u200f‮ עברית",
    "\U0010ffff\ue000\ufffd",
    "the" * 97,
    "1234567890 ٣٤٥",
]

ANY_TEXT = st.text() | st.text("thecatsndoGrößü <>/spad日本京यह012👩\t", max_size=60) | st.sampled_from(HOSTILE)


@functools.cache
def trained(kind: str = "bpe") -> Tokenizer:
    return train_tokenizer(kind, TEXTS * 3, TokenizerConfig(vocab_size=503))


@functools.cache
def dropout(rate: float, seed: int = 7) -> BpeDropout:
    return BpeDropout(trained(), rate, seed)


def with_merges(*merges: tuple[str, str]) -> Tokenizer:
    """A tokenizer of our making with a merge table written by hand."""
    content = json.loads(trained().to_json())
    pieces = [piece for piece in content["model"]["vocab"] if len(piece) == 1 or piece in ("<pad>", "<s>", "</s>")]
    pieces = sorted(pieces, key=content["model"]["vocab"].__getitem__) + [left + right for left, right in merges]
    content["model"]["vocab"] = {piece: token for token, piece in enumerate(pieces)}
    content["model"]["merges"] = [list(pair) for pair in merges]
    return Tokenizer.from_json(json.dumps(content), "by hand")


def shown(tokenizer: Tokenizer, tokens: list[int]) -> str:
    return " ".join(tokenizer.pieces(tokens)).removeprefix("▁ ")


def assert_frequencies(counts: Counter[str], chances: dict[str, float]) -> None:
    """Each within four standard deviations of what it should be, and nothing else."""
    total = sum(counts.values())
    assert set(counts) <= set(chances)
    assert math.isclose(sum(chances.values()), 1)
    for outcome, chance in chances.items():
        assert abs(counts[outcome] - total * chance) <= 4 * math.sqrt(total * chance * (1 - chance)), outcome


@given(text=ANY_TEXT, line=st.integers(0, 2**40))
@settings(max_examples=500)
def test_at_rate_zero_it_is_the_tokenizer(text, line):
    assert dropout(0.0).encode(text, 3, line) == trained().encode(text)


def test_at_rate_zero_it_is_the_tokenizer_in_twenty_languages():
    if not FLORES.is_dir():
        pytest.skip("needs shared/data/flores200-devtest-multiscript beside the project; put it there")
    lines = [line for path in sorted(FLORES.glob("*.gz")) for line in list(read_lines(path))[:53]]
    assert len(lines) == 20 * 53
    assert dropout(0.0).encode_many(lines, 2, range(len(lines))) == trained().encode_batch(lines)


def test_at_rate_zero_lower_case_is_made_as_the_tokenizer_makes_it():
    tokenizer = train_tokenizer("bpe", TEXTS * 3, TokenizerConfig(vocab_size=401, lowercase=True))
    text = "The CAT and the GRÖSSE"
    assert BpeDropout(tokenizer, 0.0, 1).encode(text, 0, 0) == tokenizer.encode(text)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@given(text=ANY_TEXT, line=st.integers(0, 2**40))
@settings(max_examples=200)
def test_whatever_is_left_out_the_text_stays(rate, text, line):
    tokens = dropout(rate).encode(text, 1, line)
    assert trained().decode(tokens) == trained().decode(trained().encode(text)) == normalise(text)
    assert not {trained().pad, trained().start, trained().end} & set(tokens)


@given(text=ANY_TEXT, line=st.integers(0, 2**40))
@settings(max_examples=200)
def test_at_rate_one_every_token_is_a_byte(text, line):
    text = normalise(text)
    tokens = dropout(1.0).encode(text, 0, line)
    assert len(tokens) == len(f" {text}".encode()) * bool(text)  # one space is put before any text
    assert trained().decode(tokens) == text


def test_overlapping_merges_have_the_chances_of_the_paper():
    tokenizer = with_merges(("a", "b"), ("b", "c"), ("ab", "c"))
    p = 0.3
    q = 1 - p
    chances = {
        "abc": q * q,  # ab is kept, then ab+c
        "ab c": q * p,  # ab is kept, ab+c left out
        "a bc": p * q,  # ab is left out, bc kept; nothing joins a and bc
        "a b c": p * p,  # both are left out
    }
    rows = BpeDropout(tokenizer, p, 11).encode_many(["abc"] * 20_011, 0, range(20_011))
    assert_frequencies(Counter(shown(tokenizer, row) for row in rows), chances)


def test_a_merge_whose_piece_has_grown_meanwhile_is_not_made():
    tokenizer = with_merges(("b", "c"), ("a", "b"), ("a", "bc"))
    p = 0.2
    q = 1 - p
    chances = {
        "abc": q * q,  # bc is kept, so that ab is impossible; then a+bc
        "a bc": q * p,
        "ab c": p * q,
        "a b c": p * p,
    }
    rows = BpeDropout(tokenizer, p, 2).encode_many(["abc"] * 20_011, 0, range(20_011))
    assert_frequencies(Counter(shown(tokenizer, row) for row in rows), chances)


def test_a_merge_possible_at_two_places_has_a_draw_for_each_place_at_each_step():
    tokenizer = with_merges(("a", "b"), ("ab", "ab"))
    p = 0.4
    q = 1 - p
    chances = {
        "abab": q**3 + p * q**3,  # first ab, second, both joined; or second, first, joined
        "ab ab": q * q * p + p * q * q * p,  # the same, but not joined
        "ab a b": q * p,  # first is kept, then the second left out
        "a b ab": p * q * p,  # first left out, second kept, then the first left out again
        "a b a b": p * p,
    }
    rows = BpeDropout(tokenizer, p, 5).encode_many(["abab"] * 20_011, 0, range(20_011))
    assert_frequencies(Counter(shown(tokenizer, row) for row in rows), chances)


def paper_chances(tokens: tuple[str, ...], ranks: dict[tuple[str, str], int], rate: float) -> Counter[str]:
    """Algorithm 1, all ways it can go: a merge is made when it is kept and all that are better are left out."""
    candidates = sorted((ranks[pair], place) for place, pair in enumerate(itertools.pairwise(tokens)) if pair in ranks)
    chances = Counter({" ".join(tokens): rate ** len(candidates)})
    for left_out, (_, place) in enumerate(candidates):
        joined = (*tokens[:place], tokens[place] + tokens[place + 1], *tokens[place + 2 :])
        for outcome, chance in paper_chances(joined, ranks, rate).items():
            chances[outcome] += rate**left_out * (1 - rate) * chance
    return chances


@pytest.mark.parametrize(("word", "rate"), [("Größe", 0.1), ("spelled", 0.5), ("the", 0.1), ("sat", 0.7)])
def test_words_of_a_learned_tokenizer_have_the_chances_of_the_paper(word, rate):
    model = json.loads(trained().to_json())["model"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
    pieces = {token: piece for piece, token in model["vocab"].items()}
    symbols = tuple(itertools.chain.from_iterable(pieces[token] for token in dropout(1.0).encode(word, 0, 0)))
    chances = paper_chances(symbols, ranks, rate)
    assert len(chances) > 3
    rows = dropout(rate, seed=13).encode_many([word] * 20_011, 0, range(20_011))
    assert_frequencies(Counter(" ".join(pieces[token] for token in row) for row in rows), chances)


@pytest.mark.parametrize("other", ["the next word", "the next line", "the next epoch", "the next seed"])
def test_choices_are_independent_of_those_of(other):
    tokenizer, count, p = with_merges(("a", "b")), 20_011, 0.3
    here = BpeDropout(tokenizer, p, 3)
    lines = range(count)
    if other == "the next word":
        rows = [shown(tokenizer, row).split(" ▁ ") for row in here.encode_many(["ab ab"] * count, 0, lines)]
        pairs = [(first, second) for first, second in rows]
    else:
        there = BpeDropout(tokenizer, p, 4) if other == "the next seed" else here
        rest = there.encode_many(
            ["ab"] * count, int(other == "the next epoch"), [line + (other == "the next line") for line in lines]
        )
        rows = here.encode_many(["ab"] * count, 0, lines)
        pairs = [(shown(tokenizer, a), shown(tokenizer, b)) for a, b in zip(rows, rest, strict=True)]
    share = {"ab": 1 - p, "a b": p}
    assert_frequencies(
        Counter(f"{first} | {second}" for first, second in pairs),
        {f"{first} | {second}": share[first] * share[second] for first in share for second in share},
    )


@given(texts=st.lists(ANY_TEXT, max_size=7), lines=st.permutations(range(7)), epoch=st.integers(0, 97))
@settings(max_examples=100)
def test_order_batch_and_what_came_before_do_not_matter(texts, lines, epoch):
    lines = lines[: len(texts)]
    used, fresh = dropout(0.3), BpeDropout(trained(), 0.3, 7)
    batch = used.encode_many(texts, epoch, lines)
    assert batch == [fresh.encode(text, epoch, line) for text, line in zip(texts, lines, strict=True)]
    assert batch[::-1] == fresh.encode_many(texts[::-1], epoch, lines[::-1])


def test_another_seed_epoch_or_line_gives_other_tokens():
    text = TEXTS[0]
    keys = [(seed, epoch, line) for seed in (0, 1, 2**63) for epoch in (0, 1) for line in (0, 1, 2**32, 2**32 + 1)]
    results = {tuple(dropout(0.5, seed).encode(text, epoch, line)) for seed, epoch, line in keys}
    assert len(results) == len(keys)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6, 0.95, 1.0])
def test_patterns_change_nothing_but_the_time(rate, monkeypatch):
    texts = [*TEXTS, *HOSTILE] * 3
    with_patterns = BpeDropout(trained(), rate, 17).encode_many(texts, 2, range(len(texts)))
    monkeypatch.setattr(bpe_dropout, "_MAX_RUNS", 0)
    without = BpeDropout(trained(), rate, 17)
    assert without.encode_many(texts, 2, range(len(texts))) == with_patterns
    assert without._cached.cache_info().currsize < 20  # words of one byte; all others were drawn one by one


SPACED = st.lists(
    st.text(max_size=4) | st.sampled_from(["", "don't", "\t", "\u00a0", "\u180e", "\x1c", "a\u0301", "Σ"])
)


@pytest.mark.parametrize("lowercase", [False, True])
@given(words=SPACED)
@settings(max_examples=300)
def test_cutting_at_spaces_first_changes_nothing_but_the_time(lowercase, words):
    quick, plain = spaced(lowercase), spaced(lowercase, at_spaces=False)
    text = " ".join(words)
    assert quick.encode(text, 0, 1) == plain.encode(text, 0, 1)


@functools.cache
def spaced(lowercase: bool, at_spaces: bool = True) -> BpeDropout:
    tokenizer = train_tokenizer("bpe", TEXTS * 3, TokenizerConfig(vocab_size=401, lowercase=lowercase))
    encoder = BpeDropout(tokenizer, 0.3, 19)
    assert encoder._cuts_at_spaces  # or the quick way would be lost without anyone seeing it
    encoder._cuts_at_spaces = at_spaces
    return encoder


def test_a_tokenizer_that_cuts_otherwise_is_cut_its_own_way():
    content = json.loads(trained().to_json())
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [content["pre_tokenizer"]]}
    content["model"]["vocab"]["tĠ"] = len(content["model"]["vocab"])
    content["model"]["merges"].insert(0, ["t", "Ġ"])
    tokenizer = Tokenizer.from_json(json.dumps(content), "by hand")
    assert "t▁" in tokenizer.pieces(tokenizer.encode("the cat sat"))  # it merges across spaces
    assert BpeDropout(tokenizer, 0.0, 0).encode("the cat sat", 0, 0) == tokenizer.encode("the cat sat")


def test_a_cache_that_is_too_small_changes_nothing_and_stays_small(monkeypatch):
    texts = TEXTS * 11
    expected = dropout(0.5).encode_many(texts, 1, range(len(texts)))
    monkeypatch.setattr(bpe_dropout, "CACHE_SIZE", 13)
    small = BpeDropout(trained(), 0.5, 7)
    assert [small.encode(text, 1, line) for line, text in enumerate(texts)] == expected
    assert small._cached.cache_info().currsize == 13


@pytest.mark.parametrize(
    "text", ["a" * 30_011, "the" * 22, "the" * 10_007, " " * 30_011, "ß" * 10_007, "👩‍👩‍👧‍👦" * 1_009]
)
def test_long_words_are_cut_in_time_and_not_kept(text):
    encoder = BpeDropout(trained(), 0.1, 3)
    for line in range(3):
        assert trained().decode(encoder.encode(text, 0, line)) == text
    assert encoder._cut_cached.cache_info().currsize == 0
    assert encoder._cached.cache_info().currsize <= 1
    assert dropout(0.0).encode(text, 0, 0) == trained().encode(text)


def test_more_is_cut_at_higher_rates():
    lengths = [
        sum(len(row) for row in dropout(rate).encode_many(TEXTS * 29, 0, range(len(TEXTS) * 29)))
        for rate in (0.0, 0.05, 0.1, 0.3, 0.6, 0.9, 1.0)
    ]
    assert lengths == sorted(set(lengths))


def test_the_hash_of_a_process_does_not_matter():
    program = """
import sys
from transduce.text.tokenizer.bpe_dropout import BpeDropout
from transduce.text.tokenizer import Tokenizer
encoder = BpeDropout(Tokenizer.from_json(sys.stdin.readline(), "stdin"), 0.3, 7)
print(encoder.encode_many([line.rstrip("\\n") for line in sys.stdin], 5, range(5)))
"""
    given_text = "\n".join([trained().to_json(), *TEXTS])
    for hash_seed in ("1", "2"):
        path = os.pathsep.join(sys.path)
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path, "PYTHONUTF8": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], input=given_text, env=environment, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == dropout(0.3).encode_many(TEXTS, 5, range(5))


def test_no_texts_have_no_tokens():
    assert dropout(0.1).encode_many([], 0, []) == []
    assert dropout(0.1).encode_many(["", ""], 0, [0, 1]) == [[], []]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bpe"])
def test_other_kinds_are_rejected(kind):
    with pytest.raises(SettingsError, match=rf"kind {kind} has none; set tokenizer\.kind = 'bpe'"):
        BpeDropout(trained(kind), 0.1, 0)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf])
def test_impossible_rates_are_rejected(rate):
    with pytest.raises(SettingsError, match="between 0 and 1"):
        BpeDropout(trained(), rate, 0)


@pytest.mark.parametrize(("part", "value"), [("ignore_merges", True), ("continuing_subword_prefix", "")])
def test_tokenizers_that_join_otherwise_are_rejected(part, value):
    content = json.loads(trained().to_json())
    content["model"][part] = value
    with pytest.raises(SettingsError, match=f"does not support .*{part}"):
        BpeDropout(Tokenizer.from_json(json.dumps(content), "by hand"), 0.1, 0)


def test_half_characters_are_a_data_error():
    with pytest.raises(DataError, match="lone surrogate"):
        dropout(0.1).encode("half \ud83d", 0, 0)
