"""A captioner on PNG and JPEG files: the weights of inline pixels, dropped files, and every command with paths."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import transduce
from transduce.cli.main import run
from transduce.data.synthetic import SyntheticPictures
from transduce.errors import DataError, MissingInput, SettingsError
from transduce.recipe import Recipe, read_recipe
from transduce.run import EvaluationOptions, evaluate, train
from transduce.tasks.catalog import load_prepared, prepare

RECIPE = Path(__file__).parents[2] / "recipes" / "captions.toml"
TRAIN, VALIDATION = (
    SyntheticPictures(pictures=kind, size=size, seed=2) for kind, size in (("seen", 48), ("held_out", 3))
)
SMALL = ["model.channels=[3,5]", "model.region_dim=7", "model.hidden_dim=11", "model.embedding_dim=13"]
SHORT = [
    "training.updates=3",
    "training.validate_every=3",
    "training.decode_examples=0",
    "training.metric=loss",
    "search.max_length=5",
    "training.batch_tokens=8200",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    TRAIN.write_files(folder / "train", scale=3)
    VALIDATION.write_files(folder / "validation")
    return folder


def changed(*corpora: str) -> Recipe:
    return read_recipe(RECIPE, [*corpora, *SMALL, *SHORT])[0]


@pytest.fixture(scope="module")
def folder(files: Path) -> Path:
    """A run on the files."""
    corpora = [f"data.{split}={{path='{files / split / 'captions.tsv'}'}}" for split in ("train", "validation")]
    train(changed(*corpora, "data.images={colours='palette'}"), files / "run")
    return files / "run"


def test_files_give_the_weights_of_the_same_pixels_as_text(folder: Path, tmp_path: Path) -> None:
    inline = [f"data.train={{pictures='seen', size={TRAIN.size}, seed=2}}"]
    inline += [f"data.validation={{pictures='held_out', size={VALIDATION.size}, seed=2}}"]
    train(changed(*inline), tmp_path / "run")
    for name in ("model.safetensors", "source.tokenizer.json", "target.tokenizer.json"):
        [found] = folder.rglob(f"model/{name}")
        [expected] = (tmp_path / "run").rglob(f"model/{name}")
        assert found.read_bytes() == expected.read_bytes(), name
    recipe = Recipe.from_tables(changed(*inline, "data.images={}").to_tables(), "a test").data
    assert recipe.images is not None and recipe.images.size == 32, "the model's side"


def test_a_path_is_read_wherever_a_source_is(folder: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = transduce.load(folder)
    scene = next(TRAIN.scenes())
    path = str(files / "train" / "000001.png")
    by_path, by_pixels = captioner.translate([path, scene.picture], n_best=1)
    assert by_path == by_pixels and captioner(path) == captioner(scene.picture)
    assert captioner.score([(path, "a red circle")]) == captioner.score([(scene.picture, "a red circle")])
    assert "".join(captioner.stream(path)) == captioner(path)
    regions = captioner.region_attention(path)
    np.testing.assert_array_equal(regions.weights, captioner.region_attention(scene.picture).weights)
    assert regions.image is not None and regions.image.shape == (448, 448, 3)
    monkeypatch.setattr(captioner, "images", None)
    with pytest.raises(DataError, match="unknown"):
        captioner(path)


def test_commands_take_paths_relative_to_their_list(
    folder: Path, files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captioner, table = transduce.load(folder), files / "validation" / "captions.tsv"
    expected = [captioner(str(files / "validation" / f"{number:06}.png")) for number in (1, 2)]
    (tmp_path / "list.txt").write_text("000001.png\n\n000002.png\n")
    images = ["--image-folder", str(files / "validation")]
    assert run(["translate", str(folder), str(tmp_path / "list.txt"), *images]) == 0
    assert capsys.readouterr().out.splitlines() == [expected[0], "", expected[1]]
    assert run(["translate", str(folder), str(tmp_path / "list.txt")]) == 66
    assert "list.txt:1: 000001.png: does not exist" in capsys.readouterr().err
    found = evaluate(folder, path=str(table), options=EvaluationOptions(samples=3))
    assert len(found.translations) == VALIDATION.size and found.translations[0] == expected[0]
    with pytest.raises(MissingInput, match=r"captions\.tsv:1: 000001\.png"):
        evaluate(folder, path=str(table), options=EvaluationOptions(image_folder=tmp_path, samples=3))
    assert run(["score", str(folder), "--path", str(table)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == VALIDATION.size
    output, image = str(tmp_path / "look"), str(files / "validation" / "000001.png")
    assert run(["inspect", str(folder), image, "--output", output, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["picture"] == f"{output}.png"
    assert (tmp_path / "look.png").read_bytes().startswith(b"\x89PNG")


def corpus(folder: Path) -> Path:
    """Three good images, a broken one and a missing one."""
    table = SyntheticPictures(pictures="seen", size=3, seed=2).write_files(folder)
    (folder / "broken.png").write_bytes(b"text")
    with table.open("a") as file:
        file.write("broken.png\ta red circle\nmissing.jpg\ta blue circle\n\ta green circle\n")
    return table


def test_an_unreadable_file_stops_preparation_or_is_counted(tmp_path: Path) -> None:
    table = corpus(tmp_path / "images")
    given = f"data.train={{path='{table}'}}"
    recipe = changed(given, "data.images={}", "data.validation.size=2")
    with pytest.raises(DataError, match=r"captions\.tsv:4: broken\.png: is not an image"):
        prepare(recipe.data, recipe.tokenizer, tmp_path / "first")
    assert not (tmp_path / "first").exists()
    recipe = changed(given, "data.images={unreadable='drop'}", "data.validation.size=2")
    report = prepare(recipe.data, recipe.tokenizer, tmp_path / "data").train
    dropped = report.issues["unreadable_image"]
    assert (report.read, report.kept, dropped.dropped, report.issues["empty"].dropped) == (6, 3, 2, 1)
    assert [(example.line, example.source) for example in dropped.examples] == [(4, "broken.png"), (5, "missing.jpg")]
    prepared = load_prepared(tmp_path / "data")
    pixels = "".join(map(chr, range(0xE040, 0xE240)))
    assert (
        None not in [prepared.source_tokenizer.encode(pixels)] and len(prepared.source_tokenizer.encode(pixels)) == 512
    )


def test_settings_that_do_not_fit_images_are_rejected() -> None:
    data = {"train": {"path": "a.tsv"}, "images": {}}
    for tables, words in [
        ({"model": {"preset": "tiny"}}, "for a model that reads images"),
        ({"model": {"preset": "captioner_small"}, "data": {**data, "images": {"size": 16}}}, "model.side = 32"),
        ({"model": {"preset": "captioner_small"}, "tokenizer": {"source_kind": "word"}}, "a token per pixel"),
    ]:
        with pytest.raises(SettingsError, match=words):
            Recipe.from_tables({"data": data, **tables}, "a test")
    recipe = Recipe.from_tables({"data": data, "model": {"preset": "captioner_paper"}}, "a test")
    assert recipe.data.images.size == 224 and recipe.tokenizer.kinds[0] == "character"


def test_a_recipe_of_images_alone_gets_a_captioner(tmp_path: Path) -> None:
    table = SyntheticPictures(pictures="seen", size=8).write_files(tmp_path)
    recipe, reasons = read_recipe(None, [f"data.train={{path='{table}'}}", "data.images={size=16}"])
    assert recipe.model.side == 16 and any("16 × 16" in reason for reason in reasons)
