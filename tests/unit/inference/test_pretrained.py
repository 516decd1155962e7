"""What every loaded model has: a description, a device, and ways to be saved and loaded again."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from tests.unit.copy_translator import TEXT, copier, tokenizer
from tests.unit.small_language_model import writer
from transduce.errors import CannotCreate, SettingsError
from transduce.model_folder import ModelFolder, save_model
from transduce.models.bert import BertConfig
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.storage.manifest import sha256
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_encoder_tokenizer

CONFIG = TransformerConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=1)


def contents() -> ModelFolder:
    known = tokenizer("word")
    model = build(CONFIG, VocabularySizes(known.size, known.size), seed=1)
    notes = {"source_language": "de", "target_language": "en", "search": {"beam_size": 3}}
    return ModelFolder(model.eval(), CONFIG, known, known, notes, "a card with <scores>")


def encoder() -> ModelFolder:
    known = train_encoder_tokenizer(TokenizerConfig(kind="word", min_frequency=1), [TEXT, TEXT])
    config = BertConfig(model_dim=14, num_heads=2, ffn_dim=19, num_layers=1, head="labels", num_labels=2)
    model = build(config, VocabularySizes(known.size, known.size), seed=1)
    return ModelFolder(model.eval(), config, known, known, {"labels": ["no", "yes"]})


@pytest.fixture
def models() -> list[transduce.Translator | transduce.Generator | transduce.TextEncoder]:
    return [transduce.Translator(contents()), transduce.Generator(writer()), transduce.TextEncoder(encoder())]


def test_a_model_goes_to_another_process_and_is_copied(
    models: list[transduce.Translator | transduce.Generator | transduce.TextEncoder],
) -> None:
    """`multiprocessing` pickles what a function of another process is called with."""
    for model in models:
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):  # noqa: S301
            assert repr(again) == repr(model) and again.contents.notes == model.contents.notes
            assert again.embed([TEXT]).tolist() == model.embed([TEXT]).tolist()


def test_load_takes_a_device_and_paths_only(tmp_path: Path) -> None:
    folder = transduce.Translator(contents()).save(tmp_path / "model")
    assert transduce.load(folder, device="cpu").device == torch.device("cpu")
    assert transduce.load(folder, folder, device="cpu").device == torch.device("cpu")
    with pytest.raises(SettingsError, match="nowhere"):
        transduce.load(folder, device="nowhere")
    wrong: list[Any] = [None, [folder], 3]
    for value in wrong:
        with pytest.raises(TypeError, match=r"folder must be the path .*, not"):
            transduce.load(value)


def test_a_saved_model_is_the_same_model(
    models: list[transduce.Translator | transduce.Generator | transduce.TextEncoder], tmp_path: Path
) -> None:
    for number, model in enumerate(models):
        folder = model.save(tmp_path / str(number))
        again = type(model).from_pretrained(folder)
        assert repr(again) == repr(model) and again.contents.notes == model.contents.notes
        assert again.embed([TEXT]).tolist() == model.embed([TEXT]).tolist()
        copy = transduce.load(folder).save_pretrained(tmp_path / f"{number} again")
        assert {path.name: sha256(path) for path in copy.iterdir()} == {
            path.name: sha256(path) for path in folder.iterdir()
        }
        others = [kind for kind in (transduce.Translator, transduce.Generator) if not isinstance(model, kind)]
        with pytest.raises(SettingsError, match=f"{folder}: holds"):
            others[0].from_pretrained(folder)


def test_a_card_is_kept(tmp_path: Path) -> None:
    save_model(tmp_path / "a", contents(), "a card with <scores>")
    assert (transduce.load(tmp_path / "a").save(tmp_path / "b") / "README.md").read_text() == "a card with <scores>"


def test_only_a_model_folder_is_replaced(tmp_path: Path) -> None:
    model = transduce.Generator(writer())
    (tmp_path / "mine").mkdir()
    model.save(tmp_path / "mine")  # it is empty
    with pytest.raises(CannotCreate, match="overwrite=True"):
        model.save(tmp_path / "mine")
    model.save(tmp_path / "mine", overwrite=True)
    (tmp_path / "notes.txt").write_text("keep")
    for call in (model.save_pretrained, lambda folder: model.save(folder, overwrite=True)):
        with pytest.raises(CannotCreate, match="model folders only"):
            call(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "keep"


def test_an_ensemble_is_not_one_model(tmp_path: Path) -> None:
    for name in "ab":
        save_model(tmp_path / name, contents(), "")
    several = transduce.load(tmp_path / "a", tmp_path / "b")
    assert "ensemble of 2" in repr(several)
    with pytest.raises(SettingsError, match="one by one"):
        several.save(tmp_path / "c")


def test_a_description_says_what_the_model_is(
    models: list[transduce.Translator | transduce.Generator | transduce.TextEncoder],
) -> None:
    translator, generator, reader = models
    size = sum(weight.numel() for weight in translator.model.parameters())
    assert repr(translator).startswith(f"Translator(model=transformer, parameters={size:,}, vocabulary=")
    assert "languages=de → en" in repr(translator) and "device=cpu" in repr(generator)
    assert repr(generator).startswith("Generator(model=gpt, ") and "objective=classify, labels=2" in repr(reader)
    for model in models:
        assert f"<caption>{type(model).__name__}</caption>" in model._repr_html_() and "<td" in model._repr_html_()


def test_a_model_is_moved_and_stays_itself(
    models: list[transduce.Translator | transduce.Generator | transduce.TextEncoder],
) -> None:
    for model in models:
        before = model.embed([TEXT]).tolist()
        assert model.to("cpu") is model and model.to(torch.device("cpu")).device == torch.device("cpu")
        assert model.to("auto").to("cpu").embed([TEXT]).tolist() == before
        with pytest.raises(SettingsError, match="tpu"):
            model.to("tpu")


def test_a_call_gives_what_it_is_given() -> None:
    translator = copier("word")
    assert translator("the fox") == "the fox" and translator(["the fox", "cats"]) == ["the fox", "cats"]
    assert translator(()) == [] and translator(iter(["cats"])) == ["cats"]
    (best, other) = translator("the fox", n_best=2)
    assert (best.text, best.score > other.score) == ("the fox", True)
    assert translator(["the fox", "cats"], n_best=2)[1][0].text == "cats"
    assert repr(best) == f"Translation('the fox', score={best.score:.4f})"
    generator = transduce.Generator(writer())
    options = {"method": "greedy", "max_length": 5}
    assert generator(["the", "a"], **options) == [generator("the", **options), generator("a", **options)]
    reader = transduce.TextEncoder(encoder())
    assert reader(["the fox", "cats"]) == [reader("the fox"), reader("cats")]


@pytest.mark.parametrize("wrong", [None, 3, b"text", Path("a.txt"), [1], ["a", None]])
def test_what_is_no_text_is_a_type_error_everywhere(wrong: object) -> None:
    translator, generator = copier("word"), transduce.Generator(writer())
    reader = transduce.TextEncoder(encoder())
    one = [translator.attention, translator.stream, generator.attention, generator.next_tokens, generator.stream]
    several = [translator.translate, translator.embed, generator.generate, generator.embed, reader.predict]
    for call in (translator, generator, reader, *several, *(one if not isinstance(wrong, list) else [])):
        with pytest.raises(TypeError, match=r"must be a|expected a"):
            found = call(wrong)  # type: ignore[operator]
            list(found)
    for call in several:
        with pytest.raises(TypeError, match="list"):
            call("one text")  # type: ignore[operator]


def test_names_of_hugging_face_get_ours() -> None:
    translator = copier("word")
    for name, ours in (("num_beams", "beam_size"), ("max_new_tokens", "max_length"), ("do_sample", "method='sample'")):
        with pytest.raises(SettingsError, match=f"{name} is called {ours}"):
            translator("the fox", **{name: 3})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"transduce\.load\('runs/x'\)"):
        transduce.Translator("runs/x")  # type: ignore[arg-type]
    for pairs in ("ab", ["ab"], [("a",)], [("a", 3)]):
        for call in (translator.score, translator.align):
            with pytest.raises(TypeError, match="pairs"):
                call(pairs)  # type: ignore[arg-type]
