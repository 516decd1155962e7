"""Documents of every format through a whole job: with a model that copies, the output is the input byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.copy_translator import copier
from tests.unit.text.document.example import BILINGUAL, EXAMPLES, FILES, Read
from transduce.inference.jobs.job import JobOptions, TranslationJob, run_job
from transduce.inference.jobs.output import open_stream
from transduce.inference.jobs.source import Source
from transduce.inference.segment import one_line
from transduce.text.document.formats import DocumentOptions


class Silent:
    """An observer that prints nothing."""

    def __getattr__(self, name: str) -> object:
        return lambda *_: None


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_model_that_copies_changes_no_byte(name: str, tmp_path: Path) -> None:
    """Also with CRLF; a catalogue or memory gets the translations that are next to its sources."""
    kind, options = EXAMPLES[name]
    content = (FILES / name).read_bytes().replace(b"\n", b"\r\n")
    path, output = tmp_path / Path(name).name, tmp_path / "output"
    path.write_bytes(content)
    translator = copier("byte")
    job = TranslationJob.of(translator, JobOptions(kind, {"method": "greedy"}, document=str(path)))
    with open_stream(str(output)) as sink:
        run_job(job, Source.open(str(path), kind, DocumentOptions(**options)), sink, Silent(), str(path))  # type: ignore[arg-type]
    expected = Read(kind, content, **options).written() if name in BILINGUAL else content
    assert output.read_bytes() == expected


@pytest.mark.parametrize("character", "\v\f\x1c\x1d\x1e\x85\u2028\u2029\x00\x1b\x7f")
def test_control_characters_that_the_source_lacks_become_spaces(character: str) -> None:
    assert one_line(f"a{character}b\r\n") == "a b  "
    assert one_line(f"a{character}b\n", f"x{character}") == f"a{character}b "
    assert one_line("a\tb") == "a\tb"


def test_tags_that_a_model_does_not_copy_are_placed_by_alignment(tmp_path: Path) -> None:
    """The vocabulary has only words, so the tags are taken out and put back where the words around them went."""
    page = "<p>the quick <b>brown fox</b> jumps over <i>the lazy</i> dog</p>\n<p>ten <img src=x> small cats</p>\n"
    path, output = tmp_path / "page.html", tmp_path / "output"
    path.write_text(page)
    job = TranslationJob.of(copier("word"), JobOptions("html", {"method": "greedy"}, document=str(path)))
    with open_stream(str(output)) as sink:
        run_job(job, Source.open(str(path)), sink, Silent(), str(path))  # type: ignore[arg-type]
    assert output.read_text() == page
