"""The corpus of a study: found in a folder, or generated; a folder without the files is one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from transduce.errors import MissingInput
from transduce.experiments.study_corpus import find_corpus, generate_corpus


def _fill(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        content = b"a b\nc d\n"
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


def test_a_folder_like_multi30k_is_found(tmp_path: Path) -> None:
    names = [f"{part}.{side}.gz" for part in ("train", "val", "test_2016_flickr") for side in ("de", "en")]
    names += [f"{part}.lc.norm.tok.{side}.gz" for part in ("train", "val") for side in ("de", "en")]
    corpus = find_corpus(_fill(tmp_path / "m", *names, "test_2017_flickr.de", "test_2017_flickr.en", "README.md"))
    assert corpus.languages == ("en", "de")
    assert [path.name for path in corpus.files["train"]] == ["train.en.gz", "train.de.gz"]
    assert [path.name for path in corpus.files["validation"]] == ["val.en.gz", "val.de.gz"]
    assert [path.name for path in corpus.files["test"]] == ["test_2016_flickr.en.gz", "test_2016_flickr.de.gz"]
    assert corpus.test_set("test").sources == ["a b", "c d"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    for names, fact in [
        ((), "0 languages"),
        (("train.en", "train.de", "train.fr"), "3 languages"),
        (("train.en", "train.de", "test.en", "test.de"), "validation"),
        (("train.en", "train.de", "dev.en", "dev.de", "test.en"), "test"),
    ]:
        folder = _fill(tmp_path / fact.split()[0], *names)
        with pytest.raises(MissingInput, match=fact):
            find_corpus(folder)
    with pytest.raises(MissingInput, match="nowhere"):
        find_corpus(tmp_path / "nowhere")


def test_a_generated_corpus_is_written_once_and_its_place_does_not_matter(tmp_path: Path) -> None:
    first, second = (generate_corpus(tmp_path / name, train=7, held_out=3) for name in ("a", "b"))
    assert first.fingerprint() == second.fingerprint()
    assert first.fingerprint() != generate_corpus(tmp_path / "a", train=8, held_out=3).fingerprint()
    assert len(first.test_set("train").sources) == 7
    assert len(first.test_set("validation").sources) == len(first.test_set("test").sources) == 3
    source = first.files["train"][0]
    source.write_text("mine\n" * 7)
    generate_corpus(tmp_path / "a", train=7, held_out=3)
    assert source.read_text() == "mine\n" * 7
