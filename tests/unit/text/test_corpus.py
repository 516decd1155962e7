"""Pairs from two files, TSV and JSONL, and every way in which they are not."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from pathlib import Path

import pytest

from transduce.errors import DataError, MissingInput, SettingsError
from transduce.text.corpus import CorpusFiles, Pair, further_columns, read_pairs

DOCUMENTS = Path(__file__).parent / "document" / "files"


def files(**settings: object) -> CorpusFiles:
    return CorpusFiles.from_table(settings, "[data]")


def saved(folder: Path, name: str, text: str) -> str:
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


def test_two_files_are_paired_line_by_line(tmp_path):
    source = saved(tmp_path, "train.de.gz", "eins\n\ndrei\n")
    target = saved(tmp_path, "train.en", "\ufeffone\r\ntwo\r\nthree")
    pairs = list(read_pairs(files(source=source, target=target)))
    assert pairs == [Pair("eins", "one", 1), Pair("", "two", 2), Pair("drei", "three", 3)]


@pytest.mark.parametrize(("num_sources", "num_targets"), [(3, 5), (5, 3), (0, 2), (2, 0), (3, 4), (4, 3)])
def test_unequal_files_are_an_error_with_both_counts(tmp_path, num_sources, num_targets):
    source = saved(tmp_path, "a.txt", "a\n" * num_sources)
    target = saved(tmp_path, "b.txt", "b\n" * num_targets)
    read = []
    with pytest.raises(DataError) as refusal:
        read.extend(read_pairs(files(source=source, target=target)))
    assert f"{source} has {num_sources} lines but {target} has {num_targets};" in str(refusal.value)


def test_two_empty_files_have_no_pairs(tmp_path):
    empty = saved(tmp_path, "a.txt", "")
    assert list(read_pairs(files(source=empty, target=saved(tmp_path, "b.txt", "")))) == []


def test_one_side_may_come_from_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n")))
    target = saved(tmp_path, "b.txt", "eins\n")
    with pytest.raises(DataError, match=r"stdin has 2 lines but .*b\.txt has 1"):
        list(read_pairs(files(source="-", target=target)))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a\tb\nc d\t\n", {}),
        ("b\ta\n\tc d\n", {"source_column": 2, "target_column": 1}),
        ("b\ta\n\tc d\n", {"source_column": "2", "target_column": "1"}),
        ("x\ta\tb\ty\n\tc d\t\t\n", {"source_column": 2, "target_column": 3}),
    ],
)
def test_tsv_columns_are_counted_from_one(tmp_path, text, columns):
    path = saved(tmp_path, "train.TSV", text)
    assert list(read_pairs(files(path=path, **columns))) == [Pair("a", "b", 1), Pair("c d", "", 2)]


def test_tsv_columns_may_be_named_by_a_header(tmp_path):
    path = saved(tmp_path, "train.tsv.gz", 'id\tde\ten\n7\t"eins\tone"\n')
    assert list(read_pairs(files(path=path, source_column="de", target_column="en"))) == [Pair('"eins', 'one"', 2)]
    with pytest.raises(DataError, match=r"train.tsv.gz:1: the header has no column 'dee'; did you mean 'de'\?"):
        list(read_pairs(files(path=path, source_column="dee", target_column="en")))


def test_a_tsv_line_with_too_few_columns_is_named(tmp_path):
    path = saved(tmp_path, "train.tsv", "a\tb\nonly one\n")
    with pytest.raises(DataError, match=r"train.tsv:2: no column 2"):
        list(read_pairs(files(path=path)))


def test_tsv_from_standard_input_needs_its_format(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    pairs = read_pairs(files(path="-", format="tsv"))
    assert next(pairs) == Pair("a", "b", 1)
    with pytest.raises(DataError, match="stdin:2:"):
        next(pairs)


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ({"source": "a", "target": "b", "id": 7}, {}),
        ({"de": "a", "en": "b"}, {"source_column": "de", "target_column": "en"}),
        (
            {"translation": {"de": "a", "en": "b"}},
            {"source_column": "translation.de", "target_column": "translation.en"},
        ),
        ({"x.y": "a", "x": {"z": "b"}}, {"source_column": "x.y", "target_column": "x.z"}),
    ],
)
@pytest.mark.parametrize("name", ["train.jsonl", "train.json", "train.v2.jsonl.gz"])
def test_jsonl_columns_are_keys_or_paths_of_keys(tmp_path, record, columns, name):
    path = saved(tmp_path, name, json.dumps(record) + "\n")
    assert list(read_pairs(files(path=path, **columns))) == [Pair("a", "b", 1)]


def test_jsonl_text_is_normalised_after_its_escapes_are_read(tmp_path):
    path = saved(tmp_path, "train.jsonl", r'{"source": "e\u0301", "target": "\ud83d\ude00"}')
    assert list(read_pairs(files(path=path))) == [Pair("é", "😀", 1)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"source": ' + "9" * 5000 + "}", "not JSON"),
        ("[1, 2]", "is a JSON array; write each of its objects on a line of its own"),
        ('"source"', "is not a JSON object"),
        ('{"sorce": "a", "target": "b"}', "has no key 'source'; did you mean 'sorce'?"),
        ('{"source": 7, "target": "b"}', "'source' is 7, not a string"),
        ('{"source": null, "target": "b"}', "'source' is null, not a string"),
        ('{"source": {"de": "a"}, "target": "b"}', "not a string"),
        (r'{"source": "a\nb", "target": "b"}', "'source' contains a line break"),
        (r'{"source": "a", "target": "\ud800"}', "'target': character 1 is a lone surrogate"),
    ],
)
def test_a_bad_jsonl_line_is_named_with_what_is_wrong(tmp_path, line, words):
    path = saved(tmp_path, "train.jsonl", '{"source": "a", "target": "b"}\n' + line + "\n")
    pairs = read_pairs(files(path=path))
    assert next(pairs) == Pair("a", "b", 1)
    with pytest.raises(DataError) as refusal:
        list(pairs)
    assert str(refusal.value).startswith(f"{path}:2: ") and words in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "no files given"),
        ({"source": "a.txt"}, "source is given but target is not"),
        ({"target": "a.txt"}, "target is given but source is not"),
        ({"source": "a", "target": "b", "path": "c.tsv"}, "not both"),
        ({"source": "-", "target": "-"}, "cannot both be stdin"),
        ({"source": "a", "target": "b", "format": "tsv"}, "for a tsv file give path"),
        ({"source": "a", "target": "b", "source_column": 1}, "columns are for"),
        ({"path": "a.tsv", "format": "lines"}, "two files"),
        ({"path": "a.txt"}, "from the name 'a.txt'"),
        ({"path": "-"}, "from the name '-'"),
        ({"path": "a.jsonl", "source_column": 1}, "names, not numbers"),
        ({"path": "a.tsv", "target_column": -1}, "column '-1'"),
        ({"path": "a.tsv", "source_column": 0}, "from 1"),
        ({"path": "a.tsv", "source_column": 1, "target_column": 1}, "different columns"),
        ({"path": "a.tsv", "source_column": 2}, "different columns"),
        ({"path": "a.tsv", "source_column": []}, "different columns"),
        ({"path": "a.csv", "source_column": ["lemma", "form"], "target_column": "form"}, "different columns"),
        ({"path": "a.tmx", "source_column": 1}, "not for tmx"),
        ({"path": "a.docx"}, "word processor"),
        ({"path": "a.html"}, "from the name 'a.html'"),
        ({"path": "a.tsv", "sourc_column": 1}, "did you mean 'source_column'"),
        ({"path": "a.csv", "format": "cvs"}, "format = 'cvs'"),
    ],
)
def test_settings_that_make_no_sense_are_rejected_with_a_sentence(settings, words):
    with pytest.raises(SettingsError) as refusal:
        files(**settings)
    assert words in str(refusal.value)


def test_settings_survive_their_table():
    corpus = files(path="a.tsv", source_column="de", target_column=2)
    assert CorpusFiles.from_table(corpus.to_table(), "again") == corpus


def test_a_missing_file_is_missing_input(tmp_path):
    with pytest.raises(MissingInput, match=r"nowhere\.tsv: cannot be read"):
        list(read_pairs(files(path=str(tmp_path / "nowhere.tsv"))))


def test_several_source_columns_are_joined(tmp_path):
    path = saved(tmp_path, "forms.tsv", "lemma\tfeatures\tform\ngehen\tV;PST\tging\n")
    columns = {"source_column": ["lemma", "features"], "target_column": "form"}
    assert list(read_pairs(files(path=path, **columns))) == [Pair("gehen V;PST", "ging", 2)]
    assert list(read_pairs(files(path=path, **columns, separator="|"))) == [Pair("gehen|V;PST", "ging", 2)]
    path = saved(tmp_path, "forms.jsonl", '{"lemma": "gehen", "tag": {"tense": "PST"}, "form": "ging"}\n')
    keys = {"source_column": ["lemma", "tag.tense"], "target_column": "form"}
    assert list(read_pairs(files(path=path, **keys))) == [Pair("gehen PST", "ging", 1)]


def test_a_header_that_names_both_sides_is_no_pair(tmp_path):
    path = saved(tmp_path, "a.csv", "target,source\nb,a\n")
    assert list(read_pairs(files(path=path))) == [Pair("a", "b", 2)]  # by their names, not by their places
    assert list(read_pairs(files(path=path, header=False))) == [Pair("target", "source", 1), Pair("b", "a", 2)]
    plain = saved(tmp_path, "b.csv", "x,y\nb,a\n")
    assert list(read_pairs(files(path=plain, header=True))) == [Pair("b", "a", 2)]
    with pytest.raises(SettingsError, match="--no-header"):
        list(read_pairs(files(path=path, header=False, source_column="source", target_column="target")))


def test_csv_is_quoted_and_may_have_line_breaks(tmp_path):
    text = 'id,de,en\r\n1,"eins, zwei","one, ""two"""\r\n2,"a\nb","c\nd"\r\n3,"a\nb",c\r\n'
    path = saved(tmp_path, "train.csv.gz", text)
    assert list(read_pairs(files(path=path, source_column="de", target_column=3))) == [
        Pair("eins, zwei", 'one, "two"', 2),
        Pair("a", "c", 3),
        Pair("b", "d", 3),
        Pair("a b", "c", 6),
    ]


def skipped(settings):
    found = []
    pairs = list(read_pairs(files(**settings), skip=lambda pair, reason: found.append((pair.line, reason))))
    return [tuple(pair) for pair in pairs], found


def test_messages_are_pairs_if_they_are_translated_and_not_fuzzy():
    pairs, found = skipped({"path": str(DOCUMENTS / "messages.po")})
    assert pairs == [("Open the file", "Datei öffnen", 11)]
    assert [reason for _, reason in found] == [
        *("untranslated", "fuzzy", "untranslated", "untranslated", "untranslated", "obsolete", "untranslated")
    ]


def test_units_of_xliff_are_pairs_if_they_are_translated():
    pairs, found = skipped({"path": str(DOCUMENTS / "strings.xlf")})
    assert pairs == [("Cancel", "Abbrechen", 12)]
    assert [reason for _, reason in found] == ["untranslated"] * 5
    pairs, found = skipped({"path": str(DOCUMENTS / "strings2.xlf")})
    assert pairs == [("Done.", "Fini.", 12)]
    _, found = skipped({"path": str(DOCUMENTS / "strings2.xlf"), "target_language": "de"})
    assert {reason for _, reason in found} == {"other_language"}


def test_units_of_tmx_are_pairs_in_the_chosen_languages():
    path = str(DOCUMENTS / "memory.tmx")
    pairs, found = skipped({"path": path, "target_language": "de"})
    assert pairs == [("The sun shines.", "Die Sonne scheint.", 8)]
    assert [reason for _, reason in found] == ["other_language", "other_language", "untranslated"]
    pairs, _ = skipped({"path": path, "source_language": "fr", "target_language": "en"})
    assert pairs == [("Pluie & vent", "Rain & wind today", 14)]
    languages = {"source_language": "en", "target_language": "de-DE"}
    assert [pair.target for pair in read_pairs(files(path=path), tuple(languages.values()))] == ["Die Sonne scheint."]


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("English\tGerman", "'English' and 'German' are read as the first pair"),
        ("question\tSQL_query", "'question' and 'SQL_query' are read as the first pair"),
        ("lemma\tform\tfeatures", "3 columns: .* as it seems to"),
        ("id\ttext_en\ttext_de", "3 columns: .* as it seems to"),
        ("source\ttarget", None),
        ("Hello.\tHallo.", None),
        ("word\tWord", None),
        ("word", None),
    ],
)
def test_a_first_row_that_seems_to_name_columns_is_noted(first: str, says: str | None, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(f"{first}\n" + "a\tb\n" * 20)
    found = further_columns(CorpusFiles(path=str(tmp_path / "x.tsv")))
    assert found is None if says is None else found is not None and re.search(says, found) is not None
    told = further_columns(CorpusFiles(path=str(tmp_path / "x.tsv"), header=True))
    assert told is None or "seems to" not in told
