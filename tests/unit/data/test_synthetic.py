from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.synthetic import SyntheticTask, TaskName
from transduce.errors import SettingsError
from transduce.tasks.translation.config import TranslationConfig


def pairs_of(task: TaskName, **settings: int) -> list[tuple[list[str], list[str]]]:
    made = SyntheticTask(task=task, **{"size": 200, **settings}).pairs()
    return [(source.split(" "), target.split(" ")) for source, target, _ in made]


def test_copy_reverse_and_sort_are_what_they_say() -> None:
    assert all(source == target for source, target in pairs_of("copy"))
    assert all(source[::-1] == target for source, target in pairs_of("reverse"))
    assert all(sorted(source) == target for source, target in pairs_of("sort"))


@given(seed=st.integers(0, 1000), length=st.integers(1, 30))
def test_addition_adds(seed: int, length: int) -> None:
    for source, target in pairs_of("addition", seed=seed, size=5, min_length=length, max_length=length):
        left, right = "".join(source).split("+")
        assert int(left) + int(right) == int("".join(target))
        assert len(left) == len(right) == length
        assert (left[0] != "0" and right[0] != "0") or length == 1


def test_recall_asks_for_the_value_of_a_key_that_was_given() -> None:
    for source, [answer] in pairs_of("recall", max_length=7, symbols=11):
        *facts, first, second, key = source
        assert first == second == "?"
        keys, values = facts[::2], facts[1::2]
        assert len(set(keys)) == len(keys) <= 7
        assert answer == values[keys.index(key)]


def test_repeat_copy_repeats_as_often_as_asked() -> None:
    made = pairs_of("repeat_copy", max_length=5)
    for source, target in made:
        *text, star, times = source
        assert star == "*" and target == text * int(times)
    assert {source[-1] for source, _ in made} == {str(times) for times in range(1, 11)}


def test_associative_recall_asks_for_the_item_that_followed() -> None:
    made = pairs_of("associative_recall", min_length=2, max_length=6, symbols=64)
    for source, target in made:
        reported, _, asked = " ".join(source).partition(" ? ")
        items = [item.strip() for item in reported.split(":")[1:]]
        assert " ".join(target) in {items[at + 1] for at, item in enumerate(items[:-1]) if item == asked}
    assert {source.count(":") for source, _ in made} == {2, 3, 4, 5, 6}


def test_lengths_and_symbols_are_kept_and_used_up() -> None:
    made = pairs_of("copy", min_length=3, max_length=5, symbols=29, size=1000)
    assert {len(source) for source, _ in made} == {3, 4, 5}
    assert len({symbol for source, _ in made for symbol in source}) == 29


def test_pairs_depend_on_the_settings_alone() -> None:
    assert pairs_of("sort", seed=3) == pairs_of("sort", seed=3)
    assert pairs_of("sort", seed=3) != pairs_of("sort", seed=4)
    assert pairs_of("sort", seed=3)[:50] == pairs_of("sort", seed=3, size=50)


def test_impossible_tasks_are_rejected_with_their_reason() -> None:
    for table, reason in (
        ({"task": "copy", "size": 5, "min_length": 9, "max_length": 3}, "min_length 9 is above max_length 3"),
        ({"task": "recall", "size": 5, "max_length": 9, "symbols": 3}, "recall needs as many symbols"),
        ({"task": "associative_recall", "size": 5}, "min_length to 2"),
        ({"task": "addition", "size": 5, "max_length": 4001}, "at most 4,000 digits"),
        ({"task": "copy", "size": 0}, "size = 0"),
        ({"task": "juggle", "size": 5}, "juggle"),
        ({"task": "copy", "size": 5, "lenght": 3}, "'lenght'"),
        ({"pth": "x.tsv"}, "did you mean 'path'"),
        ({}, "train: no files given"),
    ):
        with pytest.raises(SettingsError, match=reason):
            TranslationConfig.from_table({"train": table}, "recipe.toml: [data]")


def test_the_longest_numbers_can_be_added() -> None:
    (pair,) = SyntheticTask(task="addition", size=1, min_length=4000, max_length=4000).pairs()
    left, right = pair.source.split("+")
    assert int(left.replace(" ", "")) + int(right.replace(" ", "")) == int(pair.target.replace(" ", ""))


def test_a_language_that_cannot_be_a_tag_is_rejected_where_it_would_be_one() -> None:
    pairs, named = {"path": "a.tsv"}, {"path": "b.tsv", "target_language": "fr"}
    assert TranslationConfig.from_table({"train": pairs, "target_language": "German (Austria)"}, "it").languages == []
    with pytest.raises(SettingsError, match=r"target_language 'German \(Austria\)'"):
        TranslationConfig.from_table({"train": [pairs, named], "target_language": "German (Austria)"}, "it")


def test_a_table_of_data_survives_being_saved() -> None:
    table = {
        "train": {"task": "copy", "size": 7},
        "validation": {"path": "x.tsv"},
        "test": {"source": "a.txt", "target": "b.txt"},
    }
    data = TranslationConfig.from_table(table, "here")
    assert TranslationConfig.from_table(data.to_table(), "there") == data
    assert data.but(max_length=9).max_length == 9


def test_standard_input_is_one_corpus_only() -> None:
    with pytest.raises(SettingsError, match="only one of the corpora"):
        stdin = {"path": "-", "format": "tsv"}
        TranslationConfig.from_table({"train": stdin, "test": stdin}, "here")
