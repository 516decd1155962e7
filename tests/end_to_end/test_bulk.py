"""A file into a file, in windows: in order, whole, and the same to the last byte wherever it was interrupted."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import complaint, rewrite_manifest
from transduce.cli.main import run
from transduce.inference.jobs import job
from transduce.inference.jobs import output as part

LINES = [["a b c", "d e", "", "f", "g a x b. c d e", "b " * 30][number % 6] for number in range(11)]
SUBTITLES = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},500\n{line or 'e'}\n\n" for n, line in enumerate(LINES[:7]))
ROWS = "".join(json.dumps({"id": n, "text": f"{line}\nc d"}) + "\n" for n, line in enumerate(LINES[:7]))
TEXT = "".join(f"{line}\n" for line in LINES)
JOBS = {
    "plain": ("x.txt", TEXT, "out.txt", []),
    "gzip": ("x.txt", TEXT, "out.txt.gz", []),
    "n-best": ("x.txt", TEXT, "out.txt", ["--n-best", "2"]),
    "srt": ("x.srt", SUBTITLES, "out.srt", ["--greedy"]),
    "jsonl": ("x.jsonl", ROWS, "out.jsonl.gz", ["--format", "jsonl", "--field", "text"]),
    "prefixes": ("x.txt", TEXT, "out.txt", ["--prefix-file", "prefixes.txt"]),
    "sample": ("x.txt", TEXT, "out.txt", ["--sample", "--seed", "3"]),
}


@pytest.fixture
def small_windows(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Windows of four lines, all answered by PyTorch."""
    monkeypatch.setattr(job, "TORCH_WINDOW", 4)
    (place / "x.txt").write_text(TEXT)
    (place / "prefixes.txt").write_text("g\n\ne e\n" * 3 + "f\n\n")
    return place


def typed(name: str) -> list[str]:
    """The command of a job."""
    source, _, output, options = JOBS[name]
    return ["translate", "run", source, "--output", output, "--engine", "torch", "--threads", "1", *options]


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith((".out", "out"))}


class Snapshots:
    """Copies a folder's files before and after whatever makes them last: the worlds that a kill could leave."""

    def __init__(self, place: Path, worlds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place, self._worlds, self.count = place, worlds, 0
        for owner, name in ((part.os, "fsync"), (Path, "replace"), (Path, "unlink")):
            self._watch(owner, name, monkeypatch)

    def _watch(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real = getattr(owner, name)

        def watched(*arguments: object, **further: object) -> object:
            self._take()
            found = real(*arguments, **further)
            self._take()
            return found

        monkeypatch.setattr(owner, name, watched)

    def _take(self) -> None:
        world = self._worlds / f"{self.count:04d}"
        world.mkdir(parents=True)
        for name in left(self._place):
            shutil.copy2(self._place / name, world / name)
        self.count += 1


def different(worlds: Path) -> Iterator[Path]:
    """The worlds that are not the same as the one before."""
    before: dict[str, bytes] | None = None
    for world in sorted(worlds.iterdir()):
        files = {path.name: path.read_bytes() for path in world.iterdir()}
        if files != before:
            yield world
        before = files


@pytest.mark.parametrize("name", JOBS)
def test_a_kill_at_any_moment_changes_not_a_byte(
    name: str, small_windows: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every state that the files go through is a place to go on from, and notes count all lines."""
    place, worlds = small_windows, tmp_path_factory.mktemp("worlds")
    source, text, output, _ = JOBS[name]
    (place / source).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        Snapshots(place, worlds / "all", patch)
        assert run(typed(name)) == 0
    whole, notes = (place / output).read_bytes(), capsys.readouterr().err
    assert left(place) == {output}
    went_on = set()
    for world in different(worlds / "all"):
        for path in left(place):
            (place / path).unlink()
        for path in world.iterdir():
            shutil.copy2(path, place / path.name)
        if (place / f"{output}.part").exists() and (place / f"{output}.progress.json").exists():
            with (place / f"{output}.part").open("ab") as file:
                file.write(b"torn")
        assert run(typed(name)) == 0, world
        printed = capsys.readouterr().err
        assert (place / output).read_bytes() == whole, world
        assert left(place) == {output}
        assert printed.endswith(notes)
        went_on.add(printed.removesuffix(notes))
    assert len(went_on) >= 3 and all(printed == "" or printed.startswith("note: resumed at ") for printed in went_on)
    read = gzip.decompress(whole) if output.endswith(".gz") else whole
    assert read.count(b"\n") == text.count("\n") or name in ("n-best", "srt")


def test_windows_do_not_show(small_windows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the lines nor in the notes; a compressed output is a file like others."""
    command = ["translate", "run", "x.txt", "--engine", "torch", "--output"]
    assert run([*command, "small.txt"]) == 0
    assert run([*command, "small.txt.gz"]) == 0
    monkeypatch.setattr(job, "TORCH_WINDOW", 512)
    assert run([*command, "large.txt"]) == 0
    expected = transduce.load("run").translate(LINES)
    for name in ("small.txt", "large.txt"):
        assert Path(name).read_text().splitlines() == expected
    assert gzip.decompress(Path("small.txt.gz").read_bytes()) == Path("small.txt").read_bytes()


def test_counts_do_not_depend_on_windows(
    small_windows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    for lines in (1, 4, 512):
        monkeypatch.setattr(job, "TORCH_WINDOW", lines)
        assert run(["translate", "run", "x.txt", "--output", "out.txt", "--engine", "torch", "--threads", "1"]) == 0
        printed.append(capsys.readouterr().err)
    assert printed[0] == printed[1] == printed[2]
    assert "empty lines: 2 (11 lines" in printed[0] and "unknown source tokens: " in printed[0]


def test_ctranslate2_translates_two_windows_at_a_time_in_order(
    small_windows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")
    Path("x.txt").write_text("".join(f"{line}\n" for line in LINES * 20))
    printed = []
    for lines, threads in ((3, "1"), (7, "1"), (512, "1")):
        monkeypatch.setattr(job, "CTRANSLATE2_WINDOW", (lines, lines))
        command = ["translate", "run", "x.txt", "--greedy", "--engine", "ctranslate2", "--workers", "2"]
        assert run([*command, "--threads", threads, "--output", "out.txt"]) == 0
        printed.append((Path("out.txt").read_bytes(), capsys.readouterr().err))
    assert printed[0] == printed[1] == printed[2]
    assert run(["translate", "run", "x.txt", "--greedy", "--engine", "torch", "--threads", "1"]) == 0
    assert capsys.readouterr() == (printed[0][0].decode(), printed[0][1])


@pytest.mark.parametrize(("output", "content"), [("out.txt", b""), ("out.txt.gz", gzip.compress(b"", mtime=0))])
def test_nothing_in_gives_nothing_out(
    output: str, content: bytes, small_windows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.txt").write_bytes(b"")
    assert run(["translate", "run", "x.txt", "--output", output]) == 0
    found = Path(output).read_bytes()
    assert gzip.decompress(found) == b"" if content else found == b""
    assert left(small_windows) == {output}
    assert capsys.readouterr() == ("", "note: the input is empty, and so is the output\n")


def test_a_line_of_a_million_characters_is_a_line(small_windows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.txt").write_text("a b\n" + "c" * 1_000_000 + "\n" + "d e\n" * 5)
    assert run(["translate", "run", "x.txt", "--output", "out.txt", "--engine", "torch"]) == 0
    assert Path("out.txt").read_bytes().count(b"\n") == 7
    assert "unknown source tokens: 1 (7 lines" in capsys.readouterr().err


def test_a_bad_line_is_named_and_what_came_before_it_is_kept(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """When the line is mended, lines before it are not translated again; a bad head of a file leaves nothing."""
    command = ["translate", "run", "x.txt", "--output", "out.txt", "--engine", "torch", "--greedy", "--threads", "1"]
    Path("x.txt").write_bytes(b"a b\n" * 9 + b"c \0 d\n")
    assert run(command) == 65
    assert "NUL" in complaint(capsys.readouterr())
    assert left(place) == set()
    good = b"a b\n" * 3000  # far beyond what is looked at first
    Path("x.txt").write_bytes(good + b"c \0 d\n")
    assert run(command) == 65
    shown = capsys.readouterr()
    assert "x.txt:3001: has a NUL byte" in complaint(shown)
    assert "note: the translations so far are in out.txt.part" in shown.err
    Path("x.txt").write_bytes(good + b"c d\n")
    assert run(command) == 0
    assert re.search(r"^note: resumed at line 2,\d\d\d$", capsys.readouterr().err, re.MULTILINE)
    assert Path("out.txt").read_bytes().count(b"\n") == 3001


@pytest.fixture
def begun(small_windows: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where a translation was interrupted after its second window."""
    write, written = part.PartialOutput.write, []

    def interrupted(self: part.PartialOutput, answered: object) -> None:
        if len(written) == 2:
            signal.raise_signal(signal.SIGINT)
        written.append(answered)
        write(self, answered)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part.PartialOutput, "write", interrupted)
        assert run(typed("plain")) == 130
    shown = capsys.readouterr()
    assert "interrupted" in shown.err
    assert "note: the translations so far are in out.txt.part" in shown.err
    assert left(small_windows) == {"out.txt.part", "out.txt.progress.json"}
    return small_windows


def test_only_what_is_left_is_translated(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = json.loads(Path("out.txt.progress.json").read_text())["done"]
    assert (done["segments"], done["counts"]["lines"]) == (8, 8)
    asked: list[str] = []
    answer = transduce.Translator.translate_lines

    def watched(self: transduce.Translator, lines: list[str], *rest: object) -> object:
        asked.extend(lines)
        return answer(self, lines, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(transduce.Translator, "translate_lines", watched)
    assert run(typed("plain")) == 0
    assert asked == LINES[8:]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--greedy"], "another --greedy"),
        (["--beam-size", "3"], "another --beam-size"),
        (["--forbid", "a"], "another --forbid"),
        (["--no-split"], "another --no-split"),
        (["--n-best", "2"], "another --n-best"),
        (["--prefix-file", "prefixes.txt"], "another --prefix-file"),
        (["--format", "tsv", "--field", "1"], "another --field"),
    ],
)
def test_a_partial_output_is_not_resumed_with_other_options(
    options: list[str], reason: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("out.txt.part").read_bytes()
    assert run([*typed("plain"), *options]) == 73
    message = complaint(capsys.readouterr())
    assert f"out.txt.part: was started with {reason}; give the same as before, or delete out.txt.part and " in message
    assert message.endswith("out.txt.progress.json to start over")
    assert Path("out.txt.part").read_bytes() == before
    assert run(typed("plain")) == 0
    assert run([*typed("plain"), *options]) == 0


def test_a_part_is_not_gone_on_with_from_another_input_or_model(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.txt").write_text(TEXT.replace("d e", "e d", 1))
    assert run(typed("plain")) == 73
    assert "out.txt.part: was started with another input" in complaint(capsys.readouterr())
    Path("x.txt").write_text("a b c\n")
    assert run(typed("plain")) == 73
    assert "was started with another input" in complaint(capsys.readouterr())
    Path("x.txt").write_text(TEXT)
    card = begun / "run/model/README.md"
    old = card.read_text()
    card.write_text("another model")
    rewrite_manifest(begun / "run/model")
    assert run(typed("plain")) == 73
    assert "was started with another model" in complaint(capsys.readouterr())
    card.write_text(old)
    rewrite_manifest(begun / "run/model")
    Path("x.txt").write_text(TEXT + "g\n")  # more has come since
    os.utime("x.txt", (1, 1))
    assert run([*typed("plain"), "--threads", "2"]) == 0
    assert "resumed at line 9\n" in capsys.readouterr().err
    assert Path("out.txt").read_bytes().count(b"\n") == len(LINES) + 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("out.txt.progress.json", "{", "is not valid JSON"),
        ("out.txt.progress.json", "{}", "not the progress of a translation"),
        ("out.txt.progress.json", '{"kind": "transduce translation"}', "is damaged"),
        ("out.txt.part", "x", "has 1 bytes instead of"),
    ],
)
def test_what_is_damaged_or_a_stranger_s_is_rejected_and_stays(
    name: str, content: str, reason: str, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_text(content)
    assert run(typed("plain")) == 73
    assert f"{name}: " in (message := complaint(capsys.readouterr())) and reason in message and "delete" in message
    assert Path(name).read_text() == content
    assert left(begun) == {"out.txt.part", "out.txt.progress.json"}


def test_a_stranger_s_files_are_never_written_over(small_windows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.txt.part").write_text("thesis")
    assert run(typed("plain")) == 73
    assert "out.txt.part: exists and is not a partial translation" in complaint(capsys.readouterr())
    assert Path("out.txt.part").read_text() == "thesis"
    Path("out.txt.part").unlink()
    Path("out.txt.progress.json").write_text('{"thesis": 1}')
    assert run(typed("plain")) == 73
    assert "not the progress of a translation" in complaint(capsys.readouterr())
    assert left(small_windows) == {"out.txt.progress.json"}
