"""Variants are as described, keyed by the line, and tags and terms are around words that translate each other."""

from __future__ import annotations

import re

from tests.unit.data.cleaning.test_cleaner import corpus
from transduce.data.augmentation import KINDS, AugmentationConfig, Linker, augmented

NONE = dict.fromkeys(KINDS, 0.0)
PAIR = ("The old dog runs home.", "Der alte Hund rennt heim!")


def variants(kind: str, count: int = 40) -> list[tuple[str, str]]:
    """The variants of one kind of a pair that occurs several times."""
    config = AugmentationConfig.from_table({**NONE, kind: 1.0}, "it")
    found = list(augmented([PAIR] * count, None, config))
    return [pair for pair in found if pair != PAIR]


def test_without_probabilities_a_corpus_stays_as_it_is() -> None:
    pairs = corpus(20)
    assert list(augmented(pairs, None, AugmentationConfig.from_table(NONE, "it"))) == pairs


def test_each_variant_is_what_it_is_called() -> None:
    assert set(variants("upper")) == {("THE OLD DOG RUNS HOME.", "DER ALTE HUND RENNT HEIM!")}
    assert set(variants("title")) == {("The Old Dog Runs Home.", "Der Alte Hund Rennt Heim!")}
    assert set(variants("no_end")) == {("The old dog runs home", "Der alte Hund rennt heim")}
    typed = variants("typos")
    assert len(set(typed)) > 20
    assert all(target == PAIR[1] and abs(len(source) - len(PAIR[0])) <= 2 for source, target in typed)
    assert variants("tags") == variants("terms") == []  # without a lexicon


def test_a_line_has_the_same_variants_whatever_follows() -> None:
    config = AugmentationConfig(typos=0.5, upper=0.5)
    pairs = corpus(60)
    short, long = list(augmented(pairs[:30], None, config)), list(augmented(pairs, None, config))
    assert long[: len(short)] == short
    assert list(augmented(pairs, None, config.but(seed=2))) != long


def test_terms_and_tags_mark_words_that_translate_each_other() -> None:
    pairs = corpus(800)
    linker = Linker.learn(pairs)
    terms = AugmentationConfig.from_table({**NONE, "terms": 1.0}, "it")
    marked = [source for source, _ in augmented(pairs, linker, terms) if "<term>" in source]
    assert len(marked) > 600
    found = [term for source in marked for term in re.findall(r"(\w+) <term>(\w+)</term>", source)]
    right = sum(f"x{source}" == target for source, target in found)  # how this language translates a word
    assert right >= 0.99 * len(found)
    assert {re.sub(r" <term>\w+</term>", "", source) for source in marked} <= {source for source, _ in pairs}

    tags = AugmentationConfig.from_table({**NONE, "tags": 1.0}, "it")
    both = [pair for pair in augmented(pairs, linker, tags) if "</" in pair[0]]
    inside = [[re.findall(r"<(\w+)>(\w+)</\1>", side) for side in pair] for pair in both]
    assert all(len(one) == len(other) == 1 and one[0][0] == other[0][0] for one, other in inside)
    assert sum(f"x{one[0][1]}" == other[0][1] for one, other in inside) >= 0.99 * len(inside) > 600
