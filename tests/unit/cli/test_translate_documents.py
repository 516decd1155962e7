"""`transduce translate` on documents: by name, by content and from standard input; bad ones are one sentence."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.example import complaint
from tests.unit.text.document.example import EXAMPLES, FILES
from transduce.cli.main import run

SUBTITLES = b"1\r\n00:00:01,000 --> 00:00:02,000\r\na b c\r\n\r\n"


def written(output: str) -> list[str]:
    return [line for line in output.splitlines() if not line.strip().isdecimal() and "-->" not in line and line.strip()]


def test_a_format_is_found_by_name_content_or_option(
    place: Path, typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "film.srt").write_bytes(SUBTITLES)
    (place / "film").write_bytes(SUBTITLES)
    (place / "film.srt.gz").write_bytes(gzip.compress(SUBTITLES))
    shown = []
    for arguments in (["film.srt"], ["film"], ["film.srt.gz"], []):
        typed(SUBTITLES)
        assert run(["translate", "run", *arguments, "--engine", "torch"]) == 0
        shown.append(capsys.readouterr().out)
    assert len(set(shown)) == 1 and shown[0].startswith("1\r\n00:00:01,000 --> 00:00:02,000\r\n")
    assert len(written(shown[0])) <= 1
    assert run(["translate", "run", "film.srt", "--format", "text"]) == 0
    assert "-->" not in capsys.readouterr().out


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_format_is_translated_to_a_file(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind, options = EXAMPLES[name]
    arguments = [argument for field in options.get("fields", ()) for argument in ("--field", field)]
    arguments += ["--target-language", options["target_language"]] if "target_language" in options else []
    output = place / f"out-{Path(name).name}"
    assert run(["translate", "run", str(FILES / name), *arguments, "--greedy", "--output", str(output)]) == 0
    lines = output.read_text(encoding="utf-8").count("\n")
    assert lines >= (FILES / name).read_text(encoding="utf-8").count("\n") * 0.7
    assert kind == "text" or (FILES / name).read_text(encoding="utf-8")[:3] == output.read_text(encoding="utf-8")[:3]


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.csv", b"id,text\n1,a\n", [], (2, "--field")),
        (
            "a.csv",
            b"id,text\n1,a\n",
            ["--field", "txt"],
            (65, "a.csv:1: the header has no column 'txt'; did you mean 'text'"),
        ),
        ("a.csv", b'id,text\n1,"a\n', ["--field", "text"], (65, "a.csv:2: a quoted field")),
        ("a.xlf", b"<xliff version='1.2'>\n<file>", [], (65, "a.xlf:2: not well-formed XML")),
        ("a.tmx", b"<tmx/>", [], (2, "--target-language")),
        (
            "a.tmx",
            b"<tmx><header srclang='*all*'/><tu/></tmx>",
            ["--target-language", "de"],
            (2, "names no source language"),
        ),
        ("a.docx", b"PK\x03\x04", [], (65, "--format text")),
        ("a", b"PK\x03\x04", [], (65, "--format text")),
        ("a.json", b"{", [], (65, "a.json:1: not JSON")),
        ("a.html", b"\xff", [], (65, "a.html:1: not UTF-8")),
        ("a.srt", b"1\n", ["--field", "1"], (2, "not for srt")),
        ("a.srt", b"1\n", ["--n-best", "2"], (2, "plain text")),
        ("a.tsv", b"a\tb\n", ["--field", "1", "--target-column", "2"], (2, "exclude each other")),
        ("nowhere.html", None, [], (66, "nowhere.html: cannot be read")),
    ],
)
def test_a_mistake_is_one_sentence(
    name: str,
    content: bytes | None,
    options: list[str],
    expected: tuple[int, str],
    place: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, words = expected
    if content is not None:
        (place / name).write_bytes(content)
    assert run(["translate", "run", name, *options, "--output", "out"]) == code
    assert words in complaint(capsys.readouterr())
    assert not (place / "out").exists()


def test_a_document_without_text_to_translate_is_copied_with_a_note(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b'msgid "a"\nmsgstr "b"\n'
    (place / "done.po").write_bytes(content)
    assert run(["translate", "run", "done.po", "--output", "out.po"]) == 0
    shown = capsys.readouterr().err
    assert "no text to translate" in shown and "--retranslate" in shown and "empty" not in shown
    assert (place / "out.po").read_bytes() == content
