"""Files of examples: what is read, and what is counted as unusable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transduce.errors import DataError, SettingsError
from transduce.tasks.text_encoding.config import ExampleFiles, TextEncodingConfig
from transduce.tasks.text_encoding.corpus import Example, documents, paired, read_examples, segments


def written(folder: Path, name: str, text: str) -> ExampleFiles:
    (folder / name).write_text(text, encoding="utf-8")
    return ExampleFiles(path=str(folder / name))


def test_a_tsv_has_text_and_label_by_number(tmp_path: Path) -> None:
    files = written(tmp_path, "a.tsv", "good film\tpos\n\tneg\nno label\nlabel missing\t\n bad  \tneg\tmore\n")
    found = list(read_examples(files, "classify"))
    assert [example.fault for example in found] == [None, "empty", "columns", "columns", None]
    assert found[0] == Example(1, ("good film",), ("pos",))
    assert found[4] == Example(5, ("bad",), ("neg",))


def test_columns_that_are_counted_from_the_end_are_never_the_same(tmp_path: Path) -> None:
    files = written(tmp_path, "a.tsv", "good film\tpos\nthis line has no tab\n").but(label=-1)
    assert [example.fault for example in read_examples(files, "classify")] == [None, "columns"]


def test_labels_of_words_are_checked_as_those_of_texts_are(tmp_path: Path) -> None:
    files = written(tmp_path, "a.conll", "ein\tX\x0bY\nHund\tN\n\nda\tR\n")
    assert [example.fault for example in read_examples(files, "tag")] == ["label", None]


def test_a_tsv_has_columns_by_the_names_of_its_first_line(tmp_path: Path) -> None:
    files = written(tmp_path, "a.tsv", "gold\tfirst\tsecond\nyes\tA cat.\tAn animal.\n")
    named = files.but(text="first", second_text="second", label="gold")
    assert list(read_examples(named, "classify")) == [Example(2, ("A cat.", "An animal."), ("yes",))]
    with pytest.raises(DataError, match=r"no column 'frist'.*did you mean 'first'"):
        list(read_examples(named.but(text="frist"), "classify"))


def test_jsonl_has_keys_and_numbers_become_labels(tmp_path: Path) -> None:
    lines = [{"text": "a", "label": 1}, {"text": "b", "label": True}, {"text": "c"}, {"text": "", "label": "x"}]
    files = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    found = list(read_examples(files, "classify"))
    assert [(example.labels, example.fault) for example in found] == [
        (("1",), None),
        (("true",), None),
        (("",), "columns"),
        (("x",), "empty"),
    ]
    with pytest.raises(DataError, match="line 1 is not JSON"):
        list(read_examples(written(tmp_path, "b.jsonl", "nothing"), "classify"))


def test_conllu_leaves_out_remarks_and_what_is_no_word(tmp_path: Path) -> None:
    text = (
        "# text = Don't go\n1-2\tDon't\t_\t_\t_\n1\tDo\tdo\tAUX\tx\n2\tn't\tnot\tPART\tx\n2.1\tempty\t_\tVERB\tx\n"
        "3\tgo\tgo\tVERB\tx\n\n# next\n1\tYes\tyes\tINTJ\tx\n"
    )
    found = list(read_examples(written(tmp_path, "a.conllu", text), "tag"))
    assert [example.texts for example in found] == [("Do", "n't", "go"), ("Yes",)]
    assert found[0].labels == ("AUX", "PART", "VERB")
    other = read_examples(ExampleFiles(path=str(tmp_path / "a.conllu"), label=3), "tag")
    assert next(other).labels == ("do", "not", "go")


@pytest.mark.parametrize("number", ["", "x", "1-", "-", "1 ", "½"])
def test_a_line_of_conllu_without_a_number_spoils_its_sentence_and_is_counted(number: str, tmp_path: Path) -> None:
    text = f"1\tDo\tdo\tAUX\tx\n{number}\tgo\tgo\tVERB\tx\n\n1\tYes\tyes\tINTJ\tx\n"
    found = list(read_examples(written(tmp_path, "a.conllu", text), "tag"))
    assert [example.fault for example in found] == ["columns", None]


JOINED = ("می\u200cخواهم", "très\u00a0bien")
"""Labels with characters that are not seen and belong there."""


def test_a_label_that_would_break_a_line_is_counted(tmp_path: Path) -> None:
    lines = [{"text": "a", "label": label} for label in ("two words", "two\nlines", "a\tcolumn", "über", *JOINED)]
    files = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert [example.fault for example in read_examples(files, "classify")] == [None, "label", "label", None, None, None]


def test_half_a_character_is_rejected_with_its_place(tmp_path: Path) -> None:
    asked = '{"question": "a\\ud800", "context": "b", "answers": []}'
    for line, task in (('{"text": "a\\ud800", "label": "x"}', "classify"), (asked, "answer")):
        files = written(tmp_path, "a.jsonl", line)
        with pytest.raises(DataError, match=r"a\.jsonl:1: character 2 is a lone surrogate"):
            list(read_examples(files, task))


def test_conll_has_its_label_last_and_a_broken_line_spoils_its_sentence(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\nalone\n\nBonn\tNNP\tB-LOC\n"
    found = list(read_examples(written(tmp_path, "a.conll", text), "tag"))
    assert [(example.texts, example.labels) for example in found if example.fault is None] == [
        (("EU", "rejects"), ("B-ORG", "O")),
        (("Bonn",), ("B-LOC",)),
    ]
    assert [example.fault for example in found] == [None, "columns", None]
    fixed = ExampleFiles(path=str(tmp_path / "a.conll"), label=3)
    assert [example.fault for example in read_examples(fixed, "tag")] == [None, "columns", None]


def test_squad_and_flat_questions_are_read_alike(tmp_path: Path) -> None:
    context = "Cafe\u0301 Anna is in Rome."  # two characters that NFC makes one
    answer = {"text": "Rome", "answer_start": context.index("Rome")}
    whole = {"data": [{"paragraphs": [{"context": context, "qas": [{"question": "Where?", "answers": [answer]}]}]}]}
    squad = written(tmp_path, "a.json", json.dumps(whole))
    flat = written(tmp_path, "a.jsonl", json.dumps({"question": "Where?", "context": context, "answers": [answer]}))
    (first,), (second,) = list(read_examples(squad, "answer")), list(read_examples(flat, "answer"))
    assert first.texts == second.texts == ("Where?", "Café Anna is in Rome.")
    assert first.answers == second.answers == (("Rome", 16),)
    message, start = first.answers[0]
    assert first.texts[1][start : start + len(message)] == message
    columns = {"question": "Q", "context": "a b", "answers": {"text": ["b"], "answer_start": [2]}}
    assert next(read_examples(written(tmp_path, "b.jsonl", json.dumps(columns)), "answer")).answers == (("b", 2),)


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_places_count_the_characters_of_the_file(name: str, escaped: bool, tmp_path: Path) -> None:
    context = "e\u0301 aa aa"  # three characters before the first a, two of which NFC makes one
    question = {"question": "Q", "context": context, "answers": [{"text": "a", "answer_start": 3}]}
    files = written(tmp_path, name, json.dumps([question] if name == "a.json" else question, ensure_ascii=escaped))
    (found,) = read_examples(files, "answer")
    assert (found.fault, found.answers) == (None, (("a", 2),))


def test_squads_json_may_be_one_long_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transduce.text.lines.MAX_LINE_BYTES", 100)
    questions = [{"question": f"Q{number}", "context": "a b", "answers": []} for number in range(50)]
    files = written(tmp_path, "a.json", json.dumps(questions))
    assert len(list(read_examples(files, "answer"))) == 50
    broken = tmp_path / "b.json"
    broken.write_bytes(b'[\n{"question":\n"\xff"}]')
    with pytest.raises(DataError, match=r"b\.json:3: not UTF-8 \(byte 0xff at column 2\)"):
        list(read_examples(ExampleFiles(path=str(broken)), "answer"))
    monkeypatch.setattr("transduce.text.lines.MAX_WHOLE_BYTES", 100)
    with pytest.raises(DataError, match=r"is larger than .* JSONL"):
        list(read_examples(files, "answer"))


def test_an_answer_that_does_not_stand_there_is_unusable(tmp_path: Path) -> None:
    lines = [
        {"question": "Q", "context": "abc", "answers": [{"text": "c", "answer_start": 1}]},
        {"question": "Q", "context": "abc", "answers": []},
        {"question": "Q", "answers": []},
        {"question": " ", "context": "abc", "answers": []},
        {"question": "Q", "context": "abc", "answers": {"text": [], "answer_start": []}},
        {"question": "Q", "context": "abc", "answers": {"text": ["c"], "answer_start": ["?"]}},
    ]
    files = written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    found = list(read_examples(files, "answer"))
    assert [example.fault for example in found] == ["no_place", None, "columns", "empty", None, "columns"]
    with pytest.raises(DataError, match="no list 'data'"):
        list(read_examples(written(tmp_path, "c.json", "{}"), "answer"))


def test_blank_lines_end_documents(tmp_path: Path) -> None:
    files = written(tmp_path, "a.txt", "one\ntwo\n\n\n  \nthree\n")
    found = [[line.texts[0] for line in document] for document in documents(read_examples(files, "mask"))]
    assert found == [["one", "two"], ["three"]]


def test_segments_hold_whole_sentences_as_long_as_they_fit() -> None:
    assert segments([[1, 2], [3], [4, 5, 6], [7] * 7], 4) == [[1, 2, 3], [4, 5, 6], [7] * 4, [7] * 3]
    assert paired([[1], [2], [3, 4, 5]]) == ([([1], [2]), ([3], [4, 5])], False)
    assert paired([[1, 2], [3]]) == ([([1, 2], [3])], False)
    assert paired([[1, 2], [3], [4]]) == ([([1, 2], [3])], True)
    assert paired([[1]]) == ([], True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"objective": "classify", "train": {"path": "a.tsv", "format": "conll"}},
            "reads tsv or jsonl or babi, not conll",
        ),
        ({"objective": "tag", "train": {"path": "a", "second_text": 1}}, "second_text"),
        (
            {"objective": "tag", "train": {"path": "a"}, "test": {"path": "b", "weight": 2.0}},
            "a weight is for training",
        ),
        ({"objective": "tag", "train": []}, "empty; give at least one"),
        ({"objective": "tag", "train": {"pth": "a"}}, "did you mean 'path'"),
        ({"objective": "tga", "train": {"path": "a"}}, "objective"),
    ],
)
def test_what_makes_no_sense_is_rejected(table: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TextEncodingConfig.from_table(table, "recipe")


def test_columns_that_are_not_there_are_counted_and_never_taken_for_others(tmp_path: Path) -> None:
    table = written(tmp_path, "a.tsv", "good film\tpos\n")
    for column, fault in ((2, None), (-1, None), (3, "columns"), (-3, "columns")):
        assert next(read_examples(table.but(label=column), "classify")).fault == fault
    with pytest.raises(DataError, match="the same column"):
        next(read_examples(table.but(text=1, label=1), "classify"))
    with pytest.raises(DataError, match="the same column"):
        next(read_examples(written(tmp_path, "a.jsonl", '{"text": "a"}').but(label="text"), "classify"))
    words = written(tmp_path, "words.conll", "good\nfilm\n")
    assert [example.fault for example in read_examples(words, "tag")] == ["columns"]
    tagged = written(tmp_path, "tagged.conll", "good ADJ\nfilm NOUN\n")
    for label, fault in ((None, None), (-1, None), (1, "columns"), (-2, "columns"), (3, "columns"), (-3, "columns")):
        assert [example.fault for example in read_examples(tagged.but(label=label), "tag")] == [fault]
    assert [example.fault for example in read_examples(tagged.but(text=-3), "tag")] == ["columns"]


def test_columns_are_counted_from_one(tmp_path: Path) -> None:
    table = written(tmp_path, "a.tsv", "pos\tgood film\n")
    assert next(read_examples(table.but(text=2, label=1), "classify")).texts == ("good film",)
    with pytest.raises(SettingsError, match="from 1"):
        ExampleFiles.from_table({"path": "a.tsv", "label": 0}, "x")


@pytest.mark.parametrize(
    "content",
    [
        {"data": [3]},
        {"data": [{"paragraphs": 5}]},
        {"data": [{"paragraphs": [{"context": "a b", "qas": 7}]}]},
        {"data": [{"paragraphs": [{"context": "a b", "qas": "who"}]}]},
        {"data": [{"paragraphs": [{"context": "a b", "qas": ["who"]}]}]},
        ["who"],
    ],
    ids=str,
)
def test_what_is_no_question_in_squads_json_is_counted(content: object, tmp_path: Path) -> None:
    files = written(tmp_path, "a.json", json.dumps(content))
    assert [example.fault for example in read_examples(files, "answer")] == ["columns"]
