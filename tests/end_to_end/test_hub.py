"""Models of the Hugging Face hub by their names, with a stand-in of the hub on this machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transformers

import transduce
from tests.parity.test_import_export import SIDES, TEXTS, model_of, said_by_transformers
from tests.unit.cli.example import complaint
from tests.unit.interop.huggingface import folders
from tests.unit.local_hub import Hub, local_hub
from transduce.cli.main import run
from transduce.errors import MissingInput, ModelFolderError

NAME = "Helsinki-NLP/opus-mt-en-de"
SIZES = {**SIDES, "d_model": 32, "activation_function": "swish"}
GREEDY: dict[str, Any] = {"method": "greedy", "max_length": 12, "min_length": 6, "split": False}


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A Marian model of one language pair as `transformers` saves it, and what `transformers` says with it."""
    folder = folders.marian(tmp_path_factory.mktemp("theirs") / "model")
    vocabulary = (folder / "vocab.json").read_text(encoding="utf-8")
    (folder / "vocab.json").write_text(vocabulary.replace(">>", "x").replace("<<", "x"), encoding="utf-8")
    theirs = model_of(folder, **SIZES)
    known = transformers.MarianTokenizer.from_pretrained(folder)
    return folder, [said_by_transformers(theirs, known, text, min_new_tokens=6) for text in TEXTS]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.chdir(tmp_path)
    with local_hub(monkeypatch, tmp_path / "cache") as found:
        yield found


@pytest.fixture
def published(hub: Hub, marian: tuple[Path, list[str]]) -> str:
    """The commit of the model on the hub, with files that nobody should download."""
    return hub.put(NAME, marian[0], pytorch_model__bin=b"pickle", modeling__py=b"import os", rust_model__ot=b"x")


def offline(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.models.clear()


def test_a_model_is_imported_by_its_name_from_safe_files(
    hub: Hub, published: str, marian: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", NAME, "--output", "models/en-de"]) == 0
    assert capsys.readouterr().out == "models/en-de\n"
    translator = transduce.load("models/en-de")
    assert isinstance(translator, transduce.Translator)
    assert translator.translate(TEXTS, **GREEDY) == marian[1]
    assert {"source.spm", "target.spm", "vocab.json", "model.safetensors"} <= set(hub.fetched)
    assert not {"pytorch_model.bin", "modeling.py", "rust_model.ot"} & set(hub.fetched)
    assert f"{NAME}, revision {published}" in Path("models/en-de/README.md").read_text()


def test_a_model_is_loaded_by_its_name_and_later_without_a_network(
    hub: Hub, published: str, marian: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert transduce.from_pretrained(NAME).translate(TEXTS, **GREEDY) == marian[1]  # type: ignore[union-attr]
    fetched = list(hub.fetched)
    offline(monkeypatch, hub)
    for revision in (None, published):
        assert transduce.from_pretrained(NAME, revision).translate(TEXTS, **GREEDY) == marian[1]  # type: ignore[union-attr]
    assert hub.fetched == fetched
    with pytest.raises(MissingInput, match=r"other/model: .*HF_HUB_OFFLINE"):
        transduce.from_pretrained("other/model")


def test_a_revision_is_another_model(hub: Hub, published: str, marian: tuple[Path, list[str]], tmp_path: Path) -> None:
    other = shutil.copytree(marian[0], tmp_path / "other")
    theirs = model_of(other, **{**SIZES, "activation_function": "relu"})
    known = transformers.MarianTokenizer.from_pretrained(other)
    hub.put(NAME, other, revision="v2")
    expected = [said_by_transformers(theirs, known, text, min_new_tokens=6) for text in TEXTS]
    assert expected != marian[1] and all(marian[1])
    assert run(["import", NAME, "--revision", "v2", "--output", "v2"]) == 0
    assert transduce.load("v2").translate(TEXTS, **GREEDY) == expected  # type: ignore[union-attr]
    assert transduce.from_pretrained(NAME).translate(TEXTS, **GREEDY) == marian[1]  # type: ignore[union-attr]


def test_what_cannot_be_downloaded_is_one_sentence(
    hub: Hub, marian: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pickled = shutil.copytree(marian[0], tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    hub.put("a/pickled", pickled)
    (pickled / "config.json").write_text('{"model_type": "vits"}')
    hub.put("a/speech", pickled, model__safetensors=b"x")
    (pickled / "config.json").unlink()
    hub.put("a/empty", pickled)
    for arguments, code, words in (
        (["a/pickled"], 65, "safetensors"),
        (["a/speech"], 65, "vits"),
        (["a/empty"], 65, "config.json"),
        (["no/such"], 66, "no/such"),
        (["a/pickled", "--revision", "v9"], 66, "v9"),
        ([str(pickled), "--revision", "v9"], 2, "revision"),
    ):
        assert run(["import", *arguments, "--output", "models/x"]) == code
        assert words in complaint(capsys.readouterr())
        assert not Path("models").exists()
    assert not {"pytorch_model.bin", "model.safetensors"} & set(hub.fetched)


def test_a_hub_that_is_away_is_one_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(MissingInput, match=r"a/model: .* cannot be reached"):
        transduce.from_pretrained("a/model")


def test_a_model_of_the_hub_is_fine_tuned_in_one_command(
    hub: Hub, published: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.txt").write_text("The quick fox\ntwo words\n" * 20)
    Path("b.txt").write_text("don't you\nwords two\n" * 20)
    files = ["--source", "a.txt", "--target", "b.txt", "--updates", "2", "--threads", "1"]
    assert run(["train", "--from", NAME, *files, "--output", "runs/law"]) == 0
    assert published in capsys.readouterr().err
    tuned = transduce.load("runs/law")
    assert tuned.contents.model.sizes == transduce.from_pretrained(NAME).contents.model.sizes
    again = transduce.fine_tune(NAME, source="a.txt", target="b.txt", output="runs/again", updates=2, threads=1)
    weights = "model/model.safetensors"
    assert (again / weights).read_bytes() == Path("runs/law", weights).read_bytes()


def test_what_is_pushed_is_loaded_again(hub: Hub, marian: tuple[Path, list[str]]) -> None:
    transduce.import_model(marian[0], "ours")
    translator = transduce.load("ours")
    assert translator.push_to_hub("me/mine", private=True, commit_message="first") == f"{hub.address}/me/mine"
    assert hub.commits == ["first"]
    for loaded in (transduce.Translator.from_pretrained("me/mine"), transduce.from_pretrained("me/mine")):
        assert isinstance(loaded, transduce.Translator) and loaded.translate(TEXTS, **GREEDY) == marian[1]
    hub.put(NAME, marian[0])
    with pytest.raises(ModelFolderError, match=r"transduce\.from_pretrained"):
        transduce.Translator.from_pretrained(NAME)
