"""Stories with questions: bAbI's files, and our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.babi_corpus import simple_stories
from transduce.tasks.text_encoding.config import ExampleFiles
from transduce.tasks.text_encoding.corpus import read_babi, read_examples
from transduce.text.encoder_input import classification_input, split_context

FILE = """1 Bill travelled to the office.
2 Bill took the football there.
3 Where is Bill? \toffice\t1
4 Fred went to the hall.
5 What is Bill carrying? \tfootball,apple\t2
nonsense
1 Jeff slept.
2 Who slept?\tJeff
3 \tnothing asked
"""


def test_a_question_is_about_the_facts_before_it_in_its_story(tmp_path: Path) -> None:
    (tmp_path / "qa.txt").write_text(FILE)
    found = list(read_examples(ExampleFiles(path=str(tmp_path / "qa.txt"), format="babi"), "classify"))
    assert [(example.line, example.texts, example.labels) for example in found if example.fault is None] == [
        (3, ("Bill travelled to the office", "Bill took the football there", "Where is Bill"), ("office",)),
        (
            5,
            (
                "Bill travelled to the office",
                "Bill took the football there",
                "Fred went to the hall",
                "What is Bill carrying",
            ),
            ("football,apple",),
        ),
        (8, ("Jeff slept", "Who slept"), ("Jeff",)),
    ]
    assert [(example.line, example.fault) for example in found if example.fault] == [(6, "columns"), (9, "columns")]


def test_a_public_file_has_its_thousand_questions() -> None:
    path = Path(__file__).parents[5] / "shared" / "data" / "babi" / "en-qa1_single-supporting-fact_train.txt.gz"
    if not path.exists():
        pytest.skip(f"bAbI is not at {path}; put it there")
    found = list(read_examples(ExampleFiles(path=str(path), format="babi"), "classify"))
    assert len(found) == 1000 and not any(example.fault for example in found)
    assert found[0].texts == ("Mary moved to the bathroom", "John went to the hallway", "Where is Mary")
    assert found[0].labels == ("bathroom",)


def test_answers_of_our_stories_are_the_last_places() -> None:
    asked = [found for found in read_babi(simple_stories(20, seed=3)) if not isinstance(found, int)]
    assert len(asked) == 100
    for _, (*facts, question), answer in asked:
        person = question.removeprefix("Where is ")
        assert [fact.split()[-1] for fact in facts if fact.startswith(person)][-1] == answer
    assert list(simple_stories(3, 1)) != list(simple_stories(3, 2))


def test_a_text_is_cut_into_its_sentences() -> None:
    assert split_context("Bill slept. Fred ate!  Who slept?") == ["Bill slept", "Fred ate", "Who slept"]
    assert split_context("Bill slept.\tWho slept?") == ["Bill slept", "Who slept"]
    assert split_context(" . ") == []


class Letters:
    """A token for each letter."""

    pad, start, end, size, unknown = 0, 1, 2, 99, None

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[ord(letter) for letter in text] for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        raise NotImplementedError


def test_where_there_is_no_room_the_oldest_facts_go() -> None:
    texts = ["ab", "cd", "ef", "gh"]

    def shown(max_length: int) -> tuple[str, bool]:
        tokens, was_cut = classification_input(Letters(), texts, max_length)
        return "".join("|" if token == 2 else chr(token) for token in tokens), was_cut

    assert shown(13) == ("ab|cd|ef|gh", False)
    assert shown(12) == ("cd|ef|gh", True)
    assert shown(4) == ("gh", True)
    assert shown(3) == ("g", True)


def test_lines_out_of_order_are_left_out_up_to_the_next_story() -> None:
    """Whose facts they are is not known: a file that was cut and put together would answer from another story."""
    lines = ["1 Ann ate.", "2 Bo slept.", "2 Cy left.", "3 Who ate?\tAnn", "1 Di sang.", "4 Who sang?\tDi"]
    assert list(read_babi(iter(lines))) == [3, 4, (6, ("Di sang", "Who sang"), "Di")]


def test_numbers_may_leave_some_out_but_a_story_has_its_beginning() -> None:
    """bAbI says that numbers start at 1 and increase: a file that was cut begins in the middle of a story."""
    lines = ["3 Bo slept.", "4 Who slept?\tBo", "1 Ann ate.", "2 Cy left.", "4 Who ate?\tAnn"]
    assert list(read_babi(iter(lines))) == [1, 2, (5, ("Ann ate", "Cy left", "Who ate"), "Ann")]


def test_numbers_may_have_other_digits_but_not_thousands_of_them() -> None:
    lines = ["١ Ann ate.", "٢ Who ate?\tAnn", "1" * 5000 + " Bo ate.", "١ Di sang.", "٢ Who sang?\tDi"]
    assert list(read_babi(iter(lines))) == [
        (2, ("Ann ate", "Who ate"), "Ann"),
        3,
        (5, ("Di sang", "Who sang"), "Di"),
    ]
