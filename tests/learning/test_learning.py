"""Everything learns something small: models reach a stated bound on tasks with a known answer, with a fixed seed.

`make learn` runs these; each takes a minute or two on one core. The runs are the recipes of the project's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transduce
from tests.babi_corpus import simple_stories
from transduce.config import Table, merge
from transduce.data.cmudict import pronunciations
from transduce.data.synthetic import SyntheticPictures, SyntheticTask
from transduce.errors import MissingInput
from transduce.inference.load import load_text_encoder
from transduce.recipe import Recipe, read_recipe
from transduce.run import train
from transduce.tasks.text_encoding.evaluation import score_encoder

pytestmark = pytest.mark.learning

RECIPES = Path(__file__).parents[2] / "recipes"
SEARCHES: list[dict[str, Any]] = [{"method": "greedy"}, {"method": "beam", "beam_size": 4}]


def held_out(recipe: Recipe, count: int = 1000) -> tuple[list[str], list[str]]:
    """Sources that are neither in the training nor in the validation pairs, and their answers."""
    task, validation = recipe.data.train, recipe.data.validation
    assert isinstance(task, SyntheticTask)
    assert isinstance(validation, SyntheticTask)
    seen = {pair.source for each in (task, validation) for pair in each.pairs()}
    fresh = [pair for pair in task.but(seed=777, size=count).pairs() if pair.source not in seen]
    assert len(fresh) > count / 2
    return [pair.source for pair in fresh], [pair.target for pair in fresh]


def exact_match(translator: transduce.Translator, sources: list[str], answers: list[str], **search: Any) -> float:
    found = translator.translate(sources, **search)
    return sum(one == other for one, other in zip(found, answers, strict=True)) / len(answers)


@pytest.mark.parametrize(
    ("name", "changes", "bound"),
    [
        ("copy", [], 0.99),
        ("reverse", [], 0.99),
        ("reverse-rnn", [], 0.99),
        ("reverse-rnn", ["data.train.task=copy", "data.validation.task=copy"], 0.99),
        ("copy-ntm", [], 0.95),
        ("reverse-conv", [], 0.98),
        ("sort-bytenet", [], 0.97),
        ("sort-bytenet", ["data.train.task=copy", "data.validation.task=copy", "training.updates=300"], 0.99),
        ("reverse-neural-gpu", [], 0.95),
        ("sort", [], 0.97),
        ("addition", [], 0.95),
        ("universal-reverse", [], 0.95),
        ("reverse", ["model.attention=window", "model.window=3", "model.decoder_attention=hashed"], 0.97),
        ("reverse", ["model.attention=performer", "model.features=32", "model.decoder_attention=window"], 0.97),
        ("reverse", ["model.attention=strided", "model.stride=3", "model.decoder_attention=linear"], 0.97),
    ],
    ids=[
        "copy",
        "reverse",
        "reverse-rnn",
        "copy-rnn",
        "copy-ntm",
        "reverse-conv",
        "sort-bytenet",
        "copy-bytenet",
        "reverse-neural-gpu",
        "sort",
        "addition",
        "universal",
        "window",
        "performer",
        "strided",
    ],
)
def test_a_task_is_learnt_so_that_unseen_sources_are_answered_wholly_right(
    tmp_path: Path, name: str, changes: list[str], bound: float
) -> None:
    recipe, _ = read_recipe(RECIPES / f"{name}.toml", changes)
    sources, answers = held_out(recipe)
    translator = transduce.load(train(recipe, tmp_path / "run"))
    found = [exact_match(translator, sources, answers, **search) for search in SEARCHES]
    print(f"{name}: greedy {found[0]:.4f}, beam {found[1]:.4f} of {len(sources)} unseen sources wholly right")
    assert min(found) >= bound


def test_combinations_that_were_never_shown_are_captioned_and_their_shapes_looked_at(tmp_path: Path) -> None:
    recipe, _ = read_recipe(RECIPES / "captions.toml", [])
    captioner = transduce.load(train(recipe, tmp_path / "run"))
    scenes = list(SyntheticPictures(pictures="held_out", size=400, seed=777).scenes())
    pictures, captions = [scene.picture for scene in scenes], [scene.caption for scene in scenes]
    found = [exact_match(captioner, pictures, captions, **search) for search in SEARCHES]
    inside = total = 0
    for scene in scenes[:50]:
        regions = captioner.region_attention(scene.picture, method="greedy")
        region = len(regions.colours) // regions.weights.shape[1]
        for word, shape in scene.named.items() if regions.caption == scene.caption else ():
            row, column, _ = regions.peak(word)
            inside += (row, column) in {(pixel[0] // region, pixel[1] // region) for pixel in shape.pixels()}
            total += 1
    print(f"captions: greedy {found[0]:.4f}, beam {found[1]:.4f}; {inside} of {total} words looked at their shape")
    assert min(found) >= 0.9
    assert inside >= 0.6 * total > 60


OVERFIT: Table = {
    "tokenizer": {"joint": False, "source_kind": "character", "target_kind": "word", "min_frequency": 1},
    "training": {
        "batch_tokens": 512,
        "updates": 300,
        "schedule": "linear",
        "learning_rate": 0.003,
        "warmup": 30,
        "max_grad_norm": 1.0,
        "label_smoothing": 0.0,
        "validate_every": 300,
    },
}
MODELS: dict[str, Table] = {
    "transformer": {
        "name": "transformer",
        "model_dim": 64,
        "num_heads": 4,
        "ffn_dim": 256,
        "num_layers": 2,
        "norm": "pre",
        "tied_embeddings": "target",
        "dropout": 0.0,
    },
    "rnn": {"preset": "bahdanau", "embedding_dim": 64, "hidden_dim": 96, "dropout": 0.0},
}


def hundred_words() -> dict[str, str]:
    """A hundred words from all over the dictionary, each with its first pronunciation."""
    try:
        known = pronunciations()
    except MissingInput as error:
        pytest.skip(str(error))
    words = sorted(word for word in known if len(word) >= 4)
    return {word: known[word][0] for word in words[:: len(words) // 100][:100]}


@pytest.mark.parametrize("name", MODELS)
def test_a_hundred_real_pairs_are_learnt_by_heart_to_the_exact_output(tmp_path: Path, name: str) -> None:
    pairs = hundred_words()
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{spoken}\n" for word, spoken in pairs.items()))
    data = {"train": {"path": str(tmp_path / "pairs.tsv")}, "validation_fraction": 0.0}
    recipe = Recipe.from_tables(merge(OVERFIT, {"data": data, "model": MODELS[name]}), "a test")
    translator = transduce.load(train(recipe, tmp_path / "run"))
    assert len(pairs) == 100
    for search in SEARCHES:
        assert exact_match(translator, list(pairs), list(pairs.values()), **search) == 1.0


STORIES: Table = {
    "tokenizer": {"kind": "word", "min_frequency": 1},
    "model": {"preset": "memn2n", "model_dim": 20, "max_facts": 12},
    "training": {
        "batch_tokens": 2048,
        "updates": 500,
        "schedule": "linear",
        "learning_rate": 0.01,
        "warmup": 20,
        "betas": [0.9, 0.999],
        "max_grad_norm": 40.0,
        "label_smoothing": 0.0,
        "validate_every": 500,
        "metric": "label_accuracy",
    },
}


def test_questions_about_unseen_stories_are_answered_by_attending_to_the_right_fact(
    tmp_path: Path,
) -> None:
    for name, seed in (("train", 1), ("test", 2)):
        (tmp_path / name).write_text("\n".join(simple_stories(2000 if name == "train" else 300, seed)))
    data = {"objective": "classify", "train": {"path": str(tmp_path / "train"), "format": "babi"}, "duplicates": "keep"}
    recipe = Recipe.from_tables(merge(STORIES, {"data": data}), "a test")
    reader = load_text_encoder(train(recipe, tmp_path / "run"))
    found = score_encoder(reader, str(tmp_path / "test"))["label_accuracy"]
    print(f"stories: {found:.4f} of 1,500 questions about unseen stories answered right")
    assert found >= 0.97
    maps = reader.attention(
        "Anna went to the attic. Boris hurried to the stable. Anna walked to the cellar. Where is Boris?"
    )
    assert maps.translation == "stable"
    assert max(maps.head("cross", hop, 1)[0].argmax() == 1 for hop in (1, 2, 3))
