"""The tree of exceptions: exit codes as documented, suggestions that help."""

from __future__ import annotations

import re

import pytest

from transduce import errors
from transduce.errors import TransduceError, raised_at, suggestion

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TransduceError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_drawing_on_top_shows_every_exception_with_its_exit_code(kind: type[TransduceError]) -> None:
    drawn = dict(re.findall(r"(\w+) +(\d+)  ", errors.__doc__ or ""))
    assert drawn[kind.__name__] == str(kind.exit_code)
    assert len(drawn) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_exception_ends_the_program_with_a_failure(kind: type[TransduceError]) -> None:
    assert 0 < kind.exit_code < 128
    with pytest.raises(TransduceError, match=r"^what is wrong$"):
        raise kind("what is wrong")


def test_a_near_word_is_suggested() -> None:
    assert suggestion("num_head", ["model_dim", "num_heads", "ffn_dim"]) == "; did you mean 'num_heads'?"


def test_words_that_contain_it_are_suggested_too() -> None:
    assert suggestion("base", ["paper_base", "t5_base", "small"]) == "; did you mean 't5_base' or 'paper_base'?"
    assert suggestion("BLEU", ["bleu", "chrf"]) == "; did you mean 'bleu'?"


def test_the_known_words_are_listed_when_none_is_near() -> None:
    assert suggestion("zzz", ["b", "a"]) == "; choose from a, b"


def test_without_known_words_there_is_no_suggestion() -> None:
    assert suggestion("zzz", []) == ""


def test_any_iterable_of_words_will_do() -> None:
    assert suggestion("beem", (word for word in ["beam", "greedy"])) == "; did you mean 'beam'?"


def test_where_an_error_was_raised_is_told_without_its_message() -> None:
    def fail() -> None:
        raise ValueError("a user's text")

    with pytest.raises(ValueError) as raised:
        fail()
    first = fail.__code__.co_firstlineno
    assert raised_at(raised.value) == f"test_errors.py:{first + 1} < test_errors.py:{first + 4}"
    assert raised_at(ValueError("never raised")) == "unknown place"
