"""`transduce translate`: as many lines out as in, in order, whatever is in them."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import transduce
from tests.unit.cli.example import check_rejected, complaint
from transduce.cli.main import run
from transduce.errors import DataError
from transduce.inference.translator import Translator
from transduce.interop.huggingface.generation import unsupported_options


def test_a_file_and_standard_input_give_what_python_gives(
    place: Path, typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = "".join(f"{line}\n" for line in transduce.load("run").translate(["a b c", "d e"]))
    assert run(["translate", "run", "a.txt", "--engine", "torch"]) == 0
    assert capsys.readouterr() == (expected, "")
    typed(b"a b c\nd e\n")
    assert run(["translate", "run", "--engine", "torch"]) == 0
    assert capsys.readouterr() == (expected, "")


@pytest.mark.parametrize(
    ("lines", "notes"),
    [
        (b"", ["the input is empty"]),
        (b"\n", ["empty lines: 1 (1 lines in total)"]),
        (b"a b\n\n   \n\t\nc\n", ["empty lines: 3 (5 lines in total)"]),
        (b"a b\r\nc d\r\n", []),
        (b"a b\nno end", ["unknown source tokens: 2 (2 lines in total)"]),
        (b"\xef\xbb\xbfa\nb\n", []),
        (b"a b\xe2\x80\xa8c\x0b\x0cd\x1e\n", None),  # no line ends there
        (b"a " * 50_000 + b"\nb\n", ["translated in parts: 1 (2 lines in total)"]),
        (b"ab" * 50_000 + b"\n\nb\n", ["empty lines: 1 (3", "unknown source tokens: 1 (3"]),
    ],
    ids=["nothing", "one empty", "spaces", "CRLF", "no last end", "BOM", "odd separators", "long", "long word"],
)
def test_as_many_lines_come_out_as_go_in(
    lines: bytes, notes: list[str] | None, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "x").write_bytes(lines)
    assert run(["translate", "run", "x", "--engine", "torch"]) == 0
    shown = capsys.readouterr()
    count = lines.count(b"\n") + (not lines.endswith(b"\n") and lines != b"")
    for kept in ("\n", "\r", "\ufeff"):  # line ends and the byte-order mark stay as they are
        assert shown.out.count(kept) == lines.decode().count(kept)
    message = [line for line in shown.err.splitlines() if "cut off" not in line]
    if notes is not None:
        assert len(message) == len(notes)
        assert all(line.startswith("note: ") and note in line for line, note in zip(message, notes, strict=True))
    for number, line in enumerate(lines.split(b"\n")[:count]):
        assert bool(line.strip(b" \t\r")) or shown.out.split("\n")[number].strip() == ""


def test_a_line_break_that_a_model_says_does_not_break_the_lines(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Translator.translate_lines

    def with_breaks(*arguments: object) -> object:
        found = answers(*arguments)  # type: ignore[arg-type]
        return [[type(each)(f"x\r\ny\n{each.text}", each.score) for each in several] for several in found]

    monkeypatch.setattr(Translator, "translate_lines", with_breaks)
    assert run(["translate", "run", "a.txt", "--output", "out.txt"]) == 0
    assert (place / "out.txt").read_bytes().count(b"\n") == 2
    assert (place / "out.txt").read_text().startswith("x  y ")


def test_several_translations_are_numbered_by_line_with_scores(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "x").write_text("a b\n\nc\n")
    assert run(["translate", "run", "x", "--n-best", "3"]) == 0
    rows = [
        re.fullmatch(r"(\d+) \|\|\| (.*) \|\|\| (-?\d+\.\d{4})", line) for line in capsys.readouterr().out.splitlines()
    ]
    assert all(rows)
    assert [row[1] for row in rows if row] == ["0", "0", "0", "1", "2", "2", "2"]
    scores = [float(row[3]) for row in rows[:3] if row]
    assert scores == sorted(scores, reverse=True)


def test_options_reach_the_search(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate", "run", "a.txt", "--greedy", "--max-length", "1"]) == 0
    shown = capsys.readouterr()
    assert all(len(line.split()) <= 1 for line in shown.out.splitlines())


def test_a_seed_alone_is_noted_as_it_selects_sampling(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, noted in ((["--seed", "1"], True), (["--seed", "1", "--sample"], False), ([], False)):
        assert run(["translate", "run", "a.txt", *options]) == 0
        assert ("--seed selects sampling" in capsys.readouterr().err) is noted


@pytest.mark.parametrize("name", ["out.txt", "out.txt.gz", "new/deep/out.txt"])
def test_an_output_file_holds_what_standard_output_would(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["translate", "run", "a.txt"])
    expected = capsys.readouterr().out.encode()
    assert run(["translate", "run", "a.txt", "--output", name]) == 0
    assert capsys.readouterr().out == ""
    content = (place / name).read_bytes()
    assert (gzip.decompress(content) if name.endswith(".gz") else content) == expected


def test_an_output_replaces_a_file_through_a_link(place: Path) -> None:
    (place / "link").symlink_to("b.txt")
    assert run(["translate", "run", "a.txt", "--output", "link"]) == 0
    assert (place / "link").is_symlink()
    assert (place / "b.txt").read_text() != "c b a\ne d\n"


def test_an_input_is_never_replaced(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "link").symlink_to("a.txt")
    os.link("a.txt", "hard")
    for inputs in (["a.txt"], ["b.txt", "--prefix-file", "a.txt"], ["b.txt", "--terms", "a.txt"]):
        for output in ("a.txt", "./a.txt", "link", "hard"):
            assert run(["translate", "run", *inputs, "--output", output]) == 73
            assert "is also an input" in complaint(capsys.readouterr())
    files = ["--source", "a.txt", "--target", "b.txt"]
    assert run(["evaluate", "run", *files, "--output", "b.txt"]) == 73
    assert "is also an input" in complaint(capsys.readouterr())
    assert ((place / "a.txt").read_text(), (place / "b.txt").read_text()) == ("a b c\nd e\n", "c b a\ne d\n")


def test_a_device_is_written_to_and_never_replaced(place: Path) -> None:
    os.mkfifo(place / "pipe")
    end = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(["translate", "run", "a.txt", "--output", "pipe"]) == 0
        assert os.read(end, 1000).count(b"\n") == 2
    finally:
        os.close(end)
    assert (place / "pipe").is_fifo()


def test_gzip_and_a_model_folder_are_read_too(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["translate", "run", "a.txt"])
    expected = capsys.readouterr().out
    (place / "a.gz").write_bytes(gzip.compress((place / "a.txt").read_bytes()))
    assert run(["translate", "run/model", "a.gz"]) == 0
    assert capsys.readouterr().out == expected


def test_bad_utf_8_on_standard_input_is_named_by_its_line(
    place: Path, typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed(b"a b\n\xc3\x28\n")
    assert run(["translate", "run"]) == 65
    assert "stdin:2: " in complaint(capsys.readouterr())


def test_a_stranger_s_file_in_the_model_folder_is_never_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["translate", "run", "a.txt"])
    expected = capsys.readouterr().out
    for name in ("notes.txt", "source.tokenizer.json", "target.tokenizer.json"):
        (place / "run/model" / name).write_text("not ours")
    assert run(["translate", "run", "a.txt"]) == 0
    assert capsys.readouterr().out == expected


def test_lone_surrogates_are_rejected_in_python_too(trained: Path) -> None:
    translator = transduce.load(trained)
    with pytest.raises(DataError, match="lone surrogate"):
        translator("a \ud800")
    with pytest.raises(DataError, match="lone surrogate"):
        translator.attention("a \udfff")


def test_translations_begin_with_the_prefix_and_lack_what_is_forbidden(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All lines of the file begin alike, or each as the same line of another file; an empty prefix is none."""
    lines = Path("a.txt").read_text().splitlines()
    plain = transduce.load("run").translate(lines)
    assert run(["translate", "run", "a.txt", "--prefix", "g f"]) == 0
    assert all(line.startswith("g f") for line in capsys.readouterr().out.splitlines())
    Path("prefixes.txt").write_text("\n" + "e e\n" * (len(lines) - 1))
    assert run(["translate", "run", "a.txt", "--prefix-file", "prefixes.txt"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == plain[0]
    assert others and all(line.startswith("e e") for line in others)
    assert run(["translate", "run", "a.txt", "--min-length", "3"]) == 0
    word, *_ = capsys.readouterr().out.split()
    assert run(["translate", "run", "a.txt", "--min-length", "3", "--forbid", word]) == 0
    message = capsys.readouterr().out.split()
    assert message and word not in message


def test_a_sample_is_repeatable_by_its_seed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = []
    for seed in ("1", "1", "2"):
        assert run(["translate", "run", "a.txt", "--sample", "--seed", seed, "--n-best", "7"]) == 0
        message.append(capsys.readouterr().out)
    assert message[0] == message[1] != message[2]
    assert len(message[0].splitlines()) == 7 * len(Path("a.txt").read_text().splitlines())


def test_impossible_options_are_rejected(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("short.txt").write_text("a\n")
    Path("long.txt").write_text("a\n" * 99)
    cases = [
        (["--greedy", "--sample"], "--greedy and --sample"),
        (["--greedy", "--beam-size", "7"], "--greedy and --beam-size"),
        (["--stream", "--workers", "2"], "--stream and --workers"),
        (["--stream", "--threads", "2"], "--stream and --threads"),
        (["--engine", "torch", "--workers", "2"], "--engine torch and --workers"),
        (["--precision", "int4"], "int4"),
        (["--beam-size", "8", "--seed", "1"], "beam"),
        (["--greedy", "--diversity-penalty", "50"], "diversity"),
        (["--terms", "-", "--prefix-file", "-"], "standard input"),
        (["--source-language", "fr"], "--source-language"),
        (["--prefix", "a", "--prefix-file", "a.txt"], "--prefix and --prefix-file"),
        (["--prefix", "a zebra"], "'a zebra'"),
        (["--forbid", "zebra"], "'zebra'"),
        (["--forbid", " "], "empty"),
        (["--prefix-file", "short.txt"], "prefixes (1)"),
        (["--greedy", "--top-k", "3"], "top_k"),
        (["--min-length", "9", "--max-length", "3"], "min_length"),
        (["--top-p", "0"], "top_p"),
        (["--temperature", "0"], "temperature"),
        (["--device", "cuda"], "--device cuda"),
        (["--n-best", "0"], "--n-best 0"),
        (["--quiet", "--verbose"], "--quiet and --verbose"),
    ]
    assert not torch.cuda.is_available(), "the case of --device needs a machine without a GPU"
    check_rejected(capsys, cases, "translate", "run", "a.txt", codes=(2, 65))
    for more in ([], ["--stream"]):  # known only after the last line
        assert run(["translate", "run", "a.txt", "--prefix-file", "long.txt", *more]) in (2, 65)
        assert "more prefixes" in complaint(capsys.readouterr())


def test_ctranslate2_searches_where_it_does_what_was_asked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")
    message = {}
    for engine in ("torch", "ctranslate2", "auto"):
        assert run(["translate", "run", "a.txt", "--greedy", "--min-length", "3", "--engine", engine]) == 0
        message[engine] = capsys.readouterr()
    assert message["torch"] == message["ctranslate2"] == message["auto"]
    for engine in ("auto", "ctranslate2"):
        assert (
            run(["translate", "run", "a.txt", "--greedy", "--precision", "int8", "--engine", engine, "--verbose"]) == 0
        )
        shown = capsys.readouterr()
        assert shown.out.count("\n") == 2 and "engine: CTranslate2 in int8" in shown.err


def test_pytorch_translates_in_int8(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--engine", "torch"], ["--engine", "torch", "--beam-size", "3"]):
        assert run(["translate", "run", "a.txt", "--precision", "int8", "--verbose", *options]) == 0
        shown = capsys.readouterr()
        assert shown.out.count("\n") == 2 and "engine: PyTorch in int8" in shown.err
    assert run(["translate", "run", "a.txt", "--precision", "int8", "--stream"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


def test_ctranslate2_uses_its_own_beam_search_where_it_was_requested(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")
    beam, own = (
        ["translate", "run", "a.txt", "--beam-size", "3"],
        ["--length-normalization", "power", "--stop-rule", "beam_finished"],
    )
    assert run([*beam, *own]) == 0
    known = capsys.readouterr()
    assert "note: CTranslate2" not in known.err
    assert run([*beam, "--engine", "ctranslate2"]) == 0
    message = capsys.readouterr()
    assert message.out == known.out
    rules = "--length-normalization power --stop-rule beam_finished\n"
    assert "note: CTranslate2 " in message.err and rules in message.err
    assert run([*beam, "--precision", "int8"]) == 0
    assert rules in capsys.readouterr().err
    assert run([*beam, "--precision", "int8", "--length-normalization", "gnmt"]) == 0
    shown = capsys.readouterr().err
    assert "by PyTorch instead of CTranslate2: 2 " in shown and "gnmt" in shown
    assert run([*beam, "--workers", "2", "--output", "answers.txt"]) == 0
    assert "by PyTorch instead of CTranslate2" in capsys.readouterr().err
    assert run(beam) == 0
    assert "CTranslate2" not in capsys.readouterr().err


def test_a_model_is_exported_once_and_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ctranslate2 = pytest.importorskip(
        "ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'"
    )
    assert run(["export", "run", "--to", "ctranslate2", "--quantize", "int8", "--output", "out/small"]) == 0
    assert capsys.readouterr().out == "out/small\n"
    names = {path.name for path in Path("out/small").iterdir()}
    assert names == {
        "README.md",
        "config.json",
        "manifest.json",
        "model.bin",
        "shared_vocabulary.json",
        "tokenizer.json",
        "transduce.json",
    }
    (answer,) = ctranslate2.Translator("out/small", device="cpu").translate_batch([["a", "b"]], beam_size=1)
    assert set(answer.hypotheses[0]) <= set("abcdefg")
    assert run(["export", "run", "--to", "ctranslate2", "--output", "out/small"]) == 73
    assert "out/small: exists" in complaint(capsys.readouterr())


def test_an_export_reports_which_search_options_are_lost(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "run", "--to", "huggingface", "--output", "theirs"]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert line.startswith("note: search.length_normalization = 'gnmt'")
    kept = {"method": "beam", "length_normalization": "power", "length_penalty": 1.0, "repetition_penalty": 1.2}
    assert unsupported_options(kept) == []
    (longer,) = unsupported_options({**kept, "length_penalty": 1.6})
    assert longer.startswith("stop_rule = 'heuristic' with length_penalty = 1.6")
    assert unsupported_options({**kept, "coverage_penalty": 0.2, "presence_penalty": 1.0}) == [
        "coverage_penalty = 0.2",
        "presence_penalty = 1.0",
    ]
    assert unsupported_options({"method": "greedy", "length_penalty": 0.9}) == []


def test_documents_are_translated_in_place(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translate = transduce.load("run").translate
    Path("film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\na b c\n\n")
    assert run(["translate", "run", "film.srt", "--min-length", "2"]) == 0
    (message,) = translate(["a b c"], min_length=2)
    assert capsys.readouterr().out == f"1\n00:00:01,000 --> 00:00:02,000\n{message}\n\n"
    Path("film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\n<b>a</b> b <i>c</i> d\n\n")
    assert run(["translate", "run", "film.srt", "--min-length", "2"]) == 0
    shown = capsys.readouterr().out
    assert all(shown.count(tag) == 1 for tag in ("<b>", "</b>", "<i>", "</i>"))
    Path("rows.tsv").write_text("1\ta b c\tx\n2\t\ty\n")
    assert run(["translate", "run", "rows.tsv", "--field", "2", "--min-length", "2"]) == 0
    assert capsys.readouterr().out == f"1\t{message}\tx\n2\t\ty\n"
    Path("rows.jsonl").write_text('{"id": "Cafe\u0301", "text": "a b c"}\n', encoding="utf-8")
    assert run(["translate", "run", "rows.jsonl", "--field", "text", "--min-length", "2"]) == 0
    assert capsys.readouterr().out == f'{{"id": "Cafe\u0301", "text": "{message}"}}\n'
    assert run(["translate", "run", "film.srt", "--n-best", "2"]) == 2
    assert "srt" in complaint(capsys.readouterr())
    assert run(["translate", "run", "rows.tsv"]) == 2
    assert "field" in complaint(capsys.readouterr())
