"""Examples from files: labelled texts, tagged words, questions with answers, sentences of documents; one at a time.

An example that cannot be used is yielded with the reason, to be counted; a file of another format is an error with the
line.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transduce.config import counted
from transduce.data.store import ExampleRecord
from transduce.errors import DataError, suggestion
from transduce.tasks.text_encoding.config import ExampleFiles, Objective, saved_column
from transduce.text.lines import normalise, read_lines, read_whole

Answer = tuple[str, int]
"""The text of an answer, and the character of the context at which it starts."""

BREAKING = ("Cc", "Zl", "Zp")
"""Unicode categories of characters that break a line or control a terminal, tabs included."""
_NO_WORD = re.compile(r"\d+[-.]\d+")
"""The number of a line of CoNLL-U with a multiword token (1-2) or an empty node (1.1)."""


@dataclass(frozen=True)
class Example:
    """One example of a file. Which fields are used depends on the objective."""

    line: int
    """Its line or number in the file, counted from 1."""
    texts: tuple[str, ...] = ()
    """One text or two; the words of a sentence; question and context."""
    labels: tuple[str, ...] = ()
    """The label of a text; one for each word."""
    answers: tuple[Answer, ...] = ()
    """The accepted answers; none where the context has none."""
    fault: str | None = None
    """Why it cannot be used; a key of `report.REASONS`."""

    @property
    def record(self) -> ExampleRecord:
        """The example as a prepared corpus keeps it."""
        return ExampleRecord(self.texts, self.labels, tuple(answer for answer, _ in self.answers))


def reference(record: ExampleRecord, objective: Objective) -> str | list[str]:
    """Return what should be predicted: the label, the labels of the words, or the accepted answers."""
    if objective == "classify":
        return record.labels[0]
    return list(record.labels if objective == "tag" else record.answers)


def read_examples(files: ExampleFiles, objective: Objective) -> Iterator[Example]:
    """Yield the examples of a file; for mask, every line is one, and a blank one ends a document."""
    layout = files.layout(objective)
    if layout == "lines":
        return (Example(number, (line.strip(),)) for number, line in enumerate(read_lines(files.path), start=1))
    if layout == "conll":
        return _sentences(files)
    if layout == "babi":
        return _babi(files.path)
    if layout == "squad":
        return _squad(files.path)
    return _answers(files.path) if objective == "answer" else _labelled(files, layout == "jsonl")


def _labelled(files: ExampleFiles, is_json: bool) -> Iterator[Example]:
    second = files.second_text
    if is_json:
        names = [str(name) for name in (files.text or "text", second, files.label or "label") if name is not None]
        _check_columns_differ(names, files.path)
        for number, table in _objects(files.path):
            values = [table.get(name) for name in names]
            yield _checked(number, [_scalar(value, f"{files.path}:{number}") for value in values])
        return
    lines = enumerate(read_lines(files.path), start=1)
    default = 1 if second is None else 2
    columns = [
        0 if files.text is None else saved_column(files.text),
        *([] if second is None else [saved_column(second)]),
        default if files.label is None else saved_column(files.label),
    ]
    if any(isinstance(column, str) for column in columns):
        header = next((line for _, line in lines), "").split("\t")
        columns = [_column(header, column, files.path) for column in columns]
    places = [int(column) for column in columns]
    _check_columns_differ(places, files.path)
    for number, line in lines:
        cells = line.split("\t")
        count = len(cells)
        there = [place % count if -count <= place < count else None for place in places]
        shared = len(set(there)) < len(there)  # a column counted from the end may be another one
        yield _checked(number, [None if place is None or shared else cells[place].strip() for place in there])


def _check_columns_differ(columns: Sequence[object], path: str) -> None:
    if len(set(columns)) < len(columns):
        raise DataError(f"{path}: texts and label have the same column; give each its own")


def _babi(path: str) -> Iterator[Example]:
    for found in read_babi(read_lines(path)):
        if isinstance(found, int):
            yield Example(found, ("",), ("",), fault="columns")
        else:
            line, texts, answer = found
            yield Example(line, texts, (answer,))


def _checked(number: int, values: list[str | None]) -> Example:
    """Make an example of its texts and, last, its label."""
    *texts, label = values
    if any(value is None for value in values) or not label:
        return Example(number, tuple(text or "" for text in texts), (label or "",), fault="columns")
    found = tuple(text or "" for text in texts)
    if _breaks(label):
        return Example(number, found, (label,), fault="label")
    return Example(number, found, (label,), fault=None if all(found) else "empty")


def _breaks(label: str) -> bool:
    """Whether a label has a character that breaks a line or controls a terminal."""
    return any(unicodedata.category(character) in BREAKING for character in label)


def _scalar(value: Any, where: str) -> str | None:
    if isinstance(value, bool) or value is None or isinstance(value, dict | list):
        return None if not isinstance(value, bool) else str(value).lower()
    return normalise(str(value), where).strip()


def _column(header: list[str], column: int | str, path: str) -> int:
    if isinstance(column, int):
        return column
    if column not in header:
        raise DataError(f"{path}: has no column '{column}' in its first line{suggestion(column, header)}")
    return header.index(column)


def _objects(path: str, normalised: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(read_lines(path, normalised=normalised), start=1):
        if not line.strip():
            continue
        try:
            table = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{path}: line {number} is not JSON; every line must be one object") from None
        if not isinstance(table, dict):
            raise DataError(f"{path}: line {number} is not a JSON object; write {{…}} on every line")
        yield number, table


def _sentences(files: ExampleFiles) -> Iterator[Example]:
    """CoNLL: a word per line with its columns, a blank line between sentences; in CoNLL-U, # begins a comment, and
    multiword tokens (1-2) and empty nodes (1.1) have lines of their own, which are not words."""
    split_by_tabs = files.is_conllu
    word = int(files.is_conllu) if files.text is None else saved_column(files.text)
    label = (3 if files.is_conllu else -1) if files.label is None else saved_column(files.label)
    if isinstance(word, str) or isinstance(label, str):
        raise DataError(f"{files.path}: the columns of CoNLL are numbers, not names")
    words: list[str] = []
    labels: list[str] = []
    first, fault = 1, None
    for number, line in enumerate(read_lines(files.path), start=1):
        if not line.strip():
            if words or fault:
                yield Example(first, tuple(words), tuple(labels), fault=fault)
            words, labels, first, fault = [], [], number + 1, None
            continue
        if line.startswith("#") and files.is_conllu:
            continue
        cells = line.split("\t") if split_by_tabs or "\t" in line else line.split()
        if files.is_conllu and _NO_WORD.fullmatch(cells[0]):
            continue
        if files.is_conllu and not cells[0].isdecimal():
            fault = "columns"
            continue
        if cells[0] == "-DOCSTART-":
            continue
        count = len(cells)
        there = all(-count <= column < count for column in (word, label)) and word % count != label % count
        if not there or not cells[word].strip() or not cells[label]:
            fault = "columns"
            continue
        if _breaks(cells[label]):
            fault = "label"
            continue
        words.append(cells[word])
        labels.append(cells[label])
    if words or fault:
        yield Example(first, tuple(words), tuple(labels), fault=fault)


def _squad(path: str) -> Iterator[Example]:
    """SQuAD's JSON, or a list of flat objects."""
    try:
        content = json.loads(read_whole(path))
    except (ValueError, RecursionError):
        raise DataError(f"{path}: is not JSON; give a file in the format of SQuAD, or a .jsonl file") from None
    for number, table in enumerate(_flat(content, path), start=1):
        yield _question(number, table, f"{path}: question {number}")


def _flat(content: Any, path: str) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        yield from _tables(content)
        return
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise DataError(f"{path}: has no list 'data'; give a file in the format of SQuAD, or a .jsonl file")
    for article in _tables(content["data"]):
        for paragraph in _tables(article.get("paragraphs")):
            for question in _tables(paragraph.get("qas")):
                yield {**question, "context": paragraph.get("context")}


def _tables(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list. Anything else becomes an empty one, which is counted as lacking a column."""
    for one in value if isinstance(value, list) else [value]:
        yield one if isinstance(one, dict) else {}


def _answers(path: str) -> Iterator[Example]:
    for number, table in _objects(path, normalised=False):
        yield _question(number, table, f"{path}:{number}")


def _question(number: int, table: dict[str, Any], where: str) -> Example:
    """One question with its context; an answer that is not where its start says makes it unusable."""
    question, context = (_scalar(table.get(name), where) for name in ("question", "context"))
    raw = table.get("context")
    if question is None or context is None or not isinstance(raw, str):
        return Example(number, (question or "", context or ""), fault="columns")
    if not question or not context:
        return Example(number, (question, context), fault="empty")
    found = []
    given = _listed(table.get("answers"))
    for text, start in _with_places(given):
        answer, place = normalise(text, where), len(normalise(raw[:start]))  # characters that NFC joins count once
        if not answer or normalise(raw)[place : place + len(answer)] != answer:
            return Example(number, (question, normalise(raw)), fault="no_place")
        found.append((answer, place))
    if given and not found and not table.get("is_impossible"):
        return Example(number, (question, normalise(raw)), fault="columns")
    return Example(number, (question, normalise(raw)), answers=tuple(found))


def _listed(answers: Any) -> list[Any]:
    """[{text, answer_start}, …] as in SQuAD, or {text: […], answer_start: […]} as the hub's tables have it."""
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not (isinstance(texts, list) and isinstance(starts, list)):
            return [answers]
        return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=False)]
    return answers if isinstance(answers, list) else [answers] if answers else []


def _with_places(answers: list[Any]) -> Iterator[tuple[str, int]]:
    for answer in answers:
        if isinstance(answer, dict) and isinstance(answer.get("text"), str):
            start = answer.get("answer_start")
            if isinstance(start, int) and start >= 0:
                yield answer["text"], start


# bAbI (Weston et al. 2015, arXiv 1502.05698).

BabiQuestion = tuple[int, tuple[str, ...], str]
"""The line of a question, the facts before it with the question itself as the last, and the answer."""


def plain(sentence: str) -> str:
    """Remove the punctuation at the end of a sentence, so that its last word is a word."""
    return sentence.strip().rstrip(".?!").rstrip()


def read_babi(lines: Iterator[str]) -> Iterator[BabiQuestion | int]:
    """Yield every question; for a line that is neither fact nor question, or out of order, its number.

    A line is a number and a fact, or a number, a question, a tab, its answer, and possibly more. Number 1 begins a
    context, and numbers rise within it. That is all that bAbI's description requires, so a context may lack lines and
    keep its numbers (1, 2, 4), which refer to supporting facts. A question is about the facts before it.
    """
    facts: list[str] = []
    last: int | None = None
    for place, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        first, _, rest = line.strip().partition(" ")
        number = counted(first)
        if number is None or not plain(rest.partition("\t")[0]):
            yield place
            continue
        if number == 1:
            facts, last = [], 0
        if last is None or number <= last:  # no beginning, or out of order: the context is unknown
            last = None
            yield place
            continue
        last = number
        question, *columns = rest.split("\t")
        if not columns:
            facts.append(plain(question))
        elif columns[0].strip():
            yield place, (*facts, plain(question)), columns[0].strip()
        else:
            yield place


# Documents, for masked language modelling.

MAX_SENTENCES = 4096
"""Sentences of a document; a longer one counts as several, so that memory does not grow with it."""


def documents(lines: Iterable[Example]) -> Iterator[list[Example]]:
    """Yield the lines of each document: sentences, one per line, up to a blank line.

    A document is cut into segments of whole sentences, and a row is two consecutive segments, or one without next
    sentence prediction.
    """
    gathered: list[Example] = []
    for line in lines:
        if line.texts[0]:
            gathered.append(line)
        if gathered and (not line.texts[0] or len(gathered) == MAX_SENTENCES):
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def segments(sentences: Sequence[Sequence[int]], room: int) -> list[list[int]]:
    """Join whole sentences as long as they fit; one that alone does not fit is cut."""
    found: list[list[int]] = []
    for sentence in sentences:
        parts = [list(sentence[start : start + room]) for start in range(0, len(sentence), room)]
        for part in parts:
            if found and len(found[-1]) + len(part) <= room:
                found[-1] += part
            else:
                found.append(part)
    return found


def paired(found: list[list[int]]) -> tuple[list[tuple[list[int], list[int]]], bool]:
    """Return segments in pairs, and whether a single token is left over; a longer rest is cut in the middle."""
    pairs = [(found[place], found[place + 1]) for place in range(0, len(found) - 1, 2)]
    if len(found) % 2 == 0:
        return pairs, False
    last, middle = found[-1], len(found[-1]) // 2
    return ([*pairs, (last[:middle], last[middle:])], False) if middle else (pairs, True)
