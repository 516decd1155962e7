"""Pictures through the whole of the software, with a captioner that has learnt nothing: text in, text out, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import transduce
from transduce.cli.main import run
from transduce.data.synthetic import SyntheticPictures
from transduce.errors import DataError, SettingsError
from transduce.model_folder import ModelFolder, save_model
from transduce.models.ancestors.captioner import captioner_small
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.recipe import Recipe, read_recipe
from transduce.run import train
from transduce.tasks.catalog import load_prepared, prepare
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer
from transduce.training.compatibility import check_lengths

RECIPE = Path(__file__).parents[2] / "recipes" / "captions.toml"
PICTURE, OTHER = (pair.source for pair in SyntheticPictures(pictures="seen", size=2).pairs())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    letters = train_tokenizer("character", ["wrgbyopck"], TokenizerConfig(kind="character", min_frequency=1))
    words = train_tokenizer("word", ["a red circle above blue"], TokenizerConfig(kind="word", min_frequency=1))
    config = captioner_small().but(channels=(3, 5), region_dim=7, hidden_dim=11, embedding_dim=13)
    model = build(config, VocabularySizes(letters.size, words.size), seed=1)
    place = tmp_path_factory.mktemp("captioner") / "model"
    notes = {"search": {"method": "greedy", "max_length": 7}}
    save_model(place, ModelFolder(model, config, letters, words, notes), "a card")
    return place


def test_a_picture_is_read_whole_and_an_empty_line_stays_empty(folder: Path) -> None:
    captioner = transduce.load(folder)
    first, nothing, second = captioner.translate([PICTURE, "", OTHER], n_best=1)
    assert nothing[0].text == "" and captioner.counts.split == 0
    assert [captioner.translate([picture], n_best=1)[0][0].score for picture in (PICTURE, OTHER)] == pytest.approx(
        [first[0].score, second[0].score], abs=1e-5
    )
    assert abs(first[0].score - second[0].score) > 1e-6, "what is in the picture matters"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a dog",
            r"pixel 1 \(row 1, column 1\) is unknown.*b, c, g, k, o, p, r, w, y$",
        ),
        ("wrgb", r"has 4 pixels.*1,024"),
        (PICTURE + "w", "has 1,025 pixels"),
        (PICTURE[:40] + "A" + PICTURE[41:], r"pixel 41 \(row 2, column 9\)"),
    ],
    ids=["words", "short", "long", "unknown"],
)
def test_what_is_no_picture_is_rejected_wherever_it_comes_from(folder: Path, text: str, message: str) -> None:
    captioner = transduce.load(folder)
    for ask in (
        lambda: captioner(text),
        lambda: captioner.score([(PICTURE, "a"), (text, "a")]),
        lambda: captioner.align([(text, "a")]),
        lambda: captioner.region_attention(text),
        lambda: list(captioner.stream(text)),
    ):
        with pytest.raises(DataError, match=message):
            ask()


def test_attention_is_a_weight_for_each_pixel_and_region_attention_one_for_each_region(folder: Path) -> None:
    captioner = transduce.load(folder)
    maps, regions = captioner.attention(PICTURE), captioner.region_attention(PICTURE)
    assert "".join(maps.source_pieces[:-1]) == PICTURE
    assert regions.weights.shape == (len(regions.words), 8, 8) and regions.caption == captioner(PICTURE)
    assert regions.words == maps.target_pieces[1:]
    for word, row in enumerate(maps.mean("cross")):
        assert regions.over_pixels(word).flatten() == pytest.approx(row[:-1], abs=1e-6)


def test_inspect_draws_the_picture_for_each_word(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["inspect", str(folder), PICTURE, "--output", "look"]) == 0
    caption, *words, drawing, last = capsys.readouterr().out.splitlines()
    assert (drawing, last) == ("drawing  look.svg", "picture  look.png")
    assert (tmp_path / "look.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert caption == transduce.load(folder)(PICTURE)
    assert len(words) >= 1 and all(", column " in line and 0 < float(line.split()[-1]) <= 1 for line in words)
    assert run(["inspect", str(folder), PICTURE, "--kind", "encoder"]) == 2
    assert run(["reproduce", "head-roles", "--model", str(folder)]) == 2
    assert "pictures" in capsys.readouterr().err
    assert run(["inspect", str(folder), "wrgb"]) == 65
    assert "has 4 pixels" in capsys.readouterr().err


def test_a_corpus_without_pictures_is_rejected_before_training(tmp_path: Path) -> None:
    changes = [
        f"data.{split}={{task='reverse', size=20, seed={seed}}}" for seed, split in enumerate(("train", "validation"))
    ]
    recipe, _ = read_recipe(RECIPE, changes)
    with pytest.raises(
        SettingsError,
        match=r"kept pair 1 of the train corpus, '.+', has a source of \d+ tokens, .* \(20 such pairs",
    ):
        train(recipe, tmp_path / "run")


def test_the_one_picture_of_another_size_is_named(tmp_path: Path) -> None:
    pictures = [PICTURE, OTHER, PICTURE[:-1], OTHER]
    lines = [f"{picture}\ta thing of kind {number}\n" for number, picture in enumerate(pictures)]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    changes = [f"data.{split}={{path='{tmp_path / 'pairs.tsv'}'}}" for split in ("train", "validation")]
    recipe, _ = read_recipe(RECIPE, [*changes, "data.leakage=keep", "tokenizer.vocab_size=300"])
    with pytest.raises(SettingsError, match=r"^kept pair 3 of the train corpus, 'w.+', has .* 1,023 tokens"):
        train(recipe, tmp_path / "run")


def test_a_validation_split_may_be_gone(tmp_path: Path) -> None:
    """Where all that was held out had to be left out, the report tells of a split that is not there."""
    recipe, _ = read_recipe(RECIPE, ["data.train.size=8", "data.validation.size=2"])
    prepare(recipe.data, recipe.tokenizer, tmp_path / "data")
    corpus = load_prepared(tmp_path / "data")
    sizes = VocabularySizes(corpus.source_tokenizer.size, corpus.target_tokenizer.size)
    check_lengths(build(recipe.model, sizes, seed=1), replace(corpus, validation=None))


def test_a_model_that_reads_text_has_no_region_attention(tmp_path: Path) -> None:
    words = train_tokenizer("word", ["a b"], TokenizerConfig(kind="word", min_frequency=1))
    recipe = Recipe.from_tables({"data": {"train": {"task": "copy", "size": 9}}, "model": {"preset": "tiny"}}, "a test")
    model = build(recipe.model, VocabularySizes(words.size, words.size), seed=1)
    save_model(tmp_path / "model", ModelFolder(model, recipe.model, words, words), "a card")
    with pytest.raises(SettingsError, match="does not read pictures"):
        transduce.load(tmp_path / "model").region_attention("a b")
