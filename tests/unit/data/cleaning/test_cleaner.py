"""Each detector finds what was planted, repairs restore the corpus, and a clean corpus stays as it is."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from transduce.data.cleaning.cleaner import Cleaner
from transduce.data.cleaning.outcome import CleaningReport, CleanPair, Outcome, report_lines
from transduce.data.cleaning.rules import CleaningConfig
from transduce.errors import TransduceError
from transduce.text.corpus import Pair

Pairs = list[tuple[str, str]]
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def word(number: int, lead: str) -> str:
    """A word for each number, unlike all others."""
    return (
        lead
        + "".join(CONSONANTS[number // 5**place % 14] + VOWELS[number // 14**place % 5] for place in range(2))
        + CONSONANTS[number % 14]
    )


def corpus(count: int, seed: int = 1) -> Pairs:
    """Sentences of words with Zipf's frequencies, translated one by one in another order."""
    draw = random.Random(seed)
    weights = [1 / (rank + 3) for rank in range(300)]
    numbers = [draw.choices(range(300), weights, k=draw.randint(5, 12)) for _ in range(count)]
    return [
        (" ".join(word(one, "") for one in row), " ".join(word(one, "x") for one in sorted(row, reverse=True)))
        for row in numbers
    ]


def clean(pairs: Pairs, folder: Path, **settings: object) -> Outcome:
    config = CleaningConfig.from_table({"language": False, **settings}, "the test")
    return Cleaner(config, folder).clean(Pair(*pair, line) for line, pair in enumerate(pairs, start=1))


def kept(outcome: Outcome) -> Pairs:
    return [(one.source, one.target) for one in outcome.pairs() if isinstance(one, CleanPair)]


def reasons(outcome: Outcome) -> list[str]:
    return ["" if isinstance(one, CleanPair) else one.reason for one in outcome.pairs()]


def test_a_clean_corpus_stays_as_it_is(tmp_path: Path) -> None:
    pairs = corpus(1200)
    assert kept(clean(pairs, tmp_path)) == pairs


def test_shifted_lines_are_paired_again_and_lines_without_a_partner_removed(tmp_path: Path) -> None:
    pairs = corpus(1200)
    shifted = list(pairs)
    for start, size in ((100, 20), (500, 7), (900, 40)):
        for at in range(start, start + size):
            shifted[at] = (pairs[at][0], pairs[at + 1][1])
        lost = (pairs[start + size][0], "xaaa xeee xiii xooo xuuu xaee xaoo")
        shifted[start + size] = lost
    outcome = clean(shifted, tmp_path)
    found = kept(outcome)
    assert set(found) <= set(pairs)
    assert len(found) >= len(pairs) - 2 * 3 - 3  # of a run, the first and the last line have no partner
    assert Counter(reasons(outcome))["misaligned"] >= 3

    removed = clean(shifted, tmp_path, repair=False)
    assert len(kept(removed)) <= len(pairs) - 67 - 3
    assert set(kept(removed)) <= set(pairs)


def test_random_partners_are_found(tmp_path: Path) -> None:
    pairs = corpus(1500)
    draw = random.Random(5)
    wrong = sorted(draw.sample(range(1500), 70))
    targets = [pairs[at][1] for at in wrong]
    for at, target in zip(wrong, targets[1:] + targets[:1], strict=True):
        pairs[at] = (pairs[at][0], target)
    found = [at for at, reason in enumerate(reasons(clean(pairs, tmp_path))) if reason]
    assert len(set(found) & set(wrong)) >= 0.9 * len(wrong)
    assert len(set(found) & set(wrong)) >= 0.9 * len(found)


def test_each_pair_is_removed_for_its_reason(tmp_path: Path) -> None:
    good = corpus(400)
    planted = {
        "empty": [("", "xbada"), ("bada", "  ")],
        "too_long": [("bada " * 60, "xbada")],
        "few_letters": [("1 2 3 4 5", "17 : 4 = 4"), ("bada bada", "===== a")],
        "copy": [("Bada Dafe gogo lalo.", "bada dafe gogo lalo")],
        "ratio": [("bada", "xbada xdafe xgogo xlalo " * 6)],
        "duplicate": [(f"{good[7][0].upper()} !", good[7][1])],
        "near_duplicate": [(good[8][0] + "s", good[8][1])],
    }
    pairs = [*good, *(pair for several in planted.values() for pair in several)]
    outcome = clean(pairs, tmp_path, max_length=250, misaligned=False)
    assert reasons(outcome) == [""] * 400 + [reason for reason, several in planted.items() for _ in several]
    report = CleaningReport()
    for one in outcome.pairs():
        report.add(one)
    table = report.to_table(outcome.size, outcome.notes)
    assert table["removed"] == {reason: len(several) for reason, several in planted.items()}
    assert table["kept"] + sum(table["removed"].values()) == table["read"] == len(pairs)
    assert table["examples"]["near_duplicate"][0]["earlier_line"] == 9
    assert any("nearly equal" in line for line in report_lines(table))


def test_switches_and_thresholds_are_obeyed(tmp_path: Path) -> None:
    good = corpus(300)
    pairs = [*good, good[3], (good[4][0] + "s", good[4][1]), ("1 2 3", "1 2 3 4")]
    off = {"duplicates": False, "near_duplicates": False, "min_letters": 0.0, "misaligned": False}
    assert kept(clean(pairs, tmp_path, **off)) == pairs
    assert reasons(clean(pairs, tmp_path, similarity=1.0, misaligned=False))[300:] == ["duplicate", "", "few_letters"]


def test_a_tiny_corpus_is_not_judged_by_statistics(tmp_path: Path) -> None:
    pairs = [("one", "eins zwei drei vier fünf sechs sieben acht"), ("two words", "zwei"), ("three", "drei")]
    outcome = clean(pairs, tmp_path)
    assert kept(outcome) == pairs
    assert len(outcome.notes) == 2


ENGLISH = [
    "A man walks his dog in the park.", "Two children are playing with a ball.", "The woman reads a newspaper.",
    "People are waiting for the train at the station.", "A girl in a red dress sings a song.", "He cooks dinner.",
    "The boy jumps into the cold water.", "Some friends have lunch together.", "She rides her bicycle to work.",
]  # fmt: skip
GERMAN = [
    "Ein Mann geht mit seinem Hund in den Park.", "Zwei Kinder spielen mit einem Ball.", "Die Frau liest die Zeitung.",
    "Menschen warten am Bahnhof auf den Zug.", "Ein Mädchen in einem roten Kleid singt.", "Er kocht das Abendessen.",
    "Der Junge springt ins kalte Wasser.", "Einige Freunde essen zusammen.", "Sie fährt mit dem Rad zur Arbeit.",
]  # fmt: skip


def test_another_language_is_found_and_swapped_sides_are_swapped_back(tmp_path: Path) -> None:
    pairs = list(zip(ENGLISH, GERMAN, strict=True))
    faulty = [
        *pairs,
        ("A boy sings.", "La jeune femme regarde la mer avec son chien."),
        ("Ein alter Mann spielt Gitarre auf der Straße.", "An old man plays guitar in the street."),
        ("The shop is closed today.", "Магазин сегодня закрыт."),
    ]
    config = CleaningConfig(misaligned=False, ratio=False)
    lines = [Pair(*pair, line) for line, pair in enumerate(faulty, start=1)]
    outcome = Cleaner(config, tmp_path, ("en", "deu_Latn")).clean(lines)
    assert reasons(outcome) == [""] * 9 + ["language", "", "language"]
    assert kept(outcome)[-1] == (faulty[10][1], faulty[10][0])
    unrepaired = Cleaner(config.but(repair=False), tmp_path, ("en", "de")).clean(lines)
    assert reasons(unrepaired)[9:] == ["language", "swapped", "language"]


def test_a_side_in_a_language_that_is_unknown_or_not_the_stated_one_is_not_decimated(tmp_path: Path) -> None:
    lines = [Pair(*pair, line) for line, pair in enumerate(zip(ENGLISH, GERMAN, strict=True), start=1)]
    for stated, said in ((("en", "tlh"), "tlh"), (("en", "fr"), "recognised as fr")):
        outcome = Cleaner(CleaningConfig(misaligned=False, ratio=False), tmp_path, stated).clean(lines)
        assert len(kept(outcome)) == 9
        assert any(said in note for note in outcome.notes)
        assert not any("swap" in note for note in outcome.notes)
    outcome = Cleaner(CleaningConfig(misaligned=False, ratio=False), tmp_path, ("de", "eng_Latn")).clean(lines)
    assert any("swap source_language and target_language" in note for note in outcome.notes)


def test_a_missing_classifier_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(TransduceError, match=r"transduce\[clean\]"):
        Cleaner(CleaningConfig(), tmp_path).clean([Pair("a", "b", 1)] * 3)
