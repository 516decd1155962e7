"""TSV and CSV: which columns are translated, and how cells are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.text.document.example import Read, translated
from transduce.errors import DataError
from transduce.text.document.formats import read_units
from transduce.text.document.segment import NO_OPTIONS


def test_columns_are_numbers_from_1_or_names_of_a_header() -> None:
    assert translated("tsv", "a\tb\tc\n\tx\t", fields=("2",)) == "a\tB\tc\n\tX\t"
    assert translated("csv", "id,text\n1,a\n", fields=("text",)) == "id,text\n1,A\n"
    assert translated("csv", "id,text\n1,a\n", fields=("1", "2")) == "ID,TEXT\n1,A\n"
    assert translated("csv", "id,text\n1,a\n", fields=("2",), header=True) == "id,text\n1,A\n"


def test_a_cell_is_quoted_if_it_was_or_must_be() -> None:
    assert translated("csv", '"a",b\n', lambda _: "x", fields=("1", "2")) == '"x",x\n'
    assert translated("csv", "a,b\n", lambda _: 'x, "y"', fields=("1",)) == '"x, ""y""",b\n'
    assert translated("tsv", "1\ta\t2\n", lambda _: "x\ty", fields=("2",)) == "1\tx y\t2\n"


def test_several_columns_are_one_text_and_the_translation_has_a_column_of_its_own() -> None:
    table = "lemma\ttag\tform\ngehen\tPST\t\nsein\tPRS\talt\n"
    options = {"source_columns": ("lemma", "tag"), "target_column": "form"}
    assert Read("tsv", table.encode(), **options).texts == ["gehen PST", "sein PRS"]
    assert translated("tsv", table, **options) == "lemma\ttag\tform\ngehen\tPST\tGEHEN PST\nsein\tPRS\tSEIN PRS\n"
    new = {"source_columns": ("1",), "target_column": "new", "header": True}
    assert translated("csv", "a,b\nx,y\n", **new) == "a,b,new\nx,y,X\n"
    joined = {"source_columns": ("a", "b"), "target_column": "c", "separator": "|"}
    assert translated("jsonl", '{"a": "x", "b": "y"}\n', **joined) == '{"a": "x", "b": "y", "c": "X|Y"}\n'
    assert translated("jsonl", '{"c": "", "a": "x", "b": "y"}\n', **joined) == '{"c": "X|Y", "a": "x", "b": "y"}\n'


def test_a_column_has_the_language_of_each_row() -> None:
    found = Read("csv", b"to,text\nde,a\nfr,b\n", fields=("text",), language_field="to")
    assert [segment.target_language for segment in found.segments] == [None, "de", "fr"]
    with pytest.raises(DataError, match=":2: has no target language"):
        Read("tsv", b"x\ta\n\tb\n", fields=("2",), language_field="1")


def test_a_first_line_of_a_spreadsheet_states_the_delimiter(tmp_path: Path) -> None:
    content = 'sep=;\r\nid;text\r\n1;"a, b"\r\n'
    assert translated("csv", content, fields=("text",)) == 'sep=;\r\nid;text\r\n1;"A, B"\r\n'
    (tmp_path / "x.csv").write_text("sep=|\nsource|target\na;a|b,b\n")
    (unit,) = read_units(str(tmp_path / "x.csv"), "csv", NO_OPTIONS)
    assert unit[:3] == ("a;a", "b,b", 3)


def test_the_delimiter_is_what_gives_rows_equally_many_columns() -> None:
    """Decimal commas are more frequent in the first row than what separates the cells."""
    assert translated("csv", "1,5;2,5;x,y,z\n2;3;a, b\n", fields=("3",)) == "1,5;2,5;X,Y,Z\n2;3;A, B\n"
    assert translated("csv", "a|b,c,d\n", fields=("2",)) == "a|b,C,d\n"


def test_a_cell_may_have_spaces_around_its_quotes() -> None:
    assert translated("csv", '1, "a, ""b""" ,c\n', fields=("2",)) == '1, "A, ""B""" ,c\n'
    assert translated("csv", '1, "a"\n', lambda _: 'x "y"', fields=("2",)) == '1, "x ""y"""\n'
    assert translated("csv", '1,\t"a\n', fields=("2",)) == '1,\t"A\n'
