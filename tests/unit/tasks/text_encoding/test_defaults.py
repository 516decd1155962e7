"""The settings that are chosen for text encoders from their examples alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import SettingsError
from transduce.recipe import read_recipe
from transduce.tasks.text_encoding.defaults import Amount, choose_settings


def chosen(tmp_path: Path, objective: str, content: str, name: str, **files: object) -> tuple[dict, str]:  # type: ignore[type-arg]
    """Return the tables of the recipe and the reasons, for one file and nothing else."""
    path = tmp_path / name
    path.write_text(content)
    data = {"objective": objective, "train": {"path": str(path), **files}}
    recipe, reasons = read_recipe(None, base={"data": data})
    return recipe.to_tables(), " ".join(reasons)


def test_a_small_treebank_gets_a_small_model_and_is_judged_by_its_words(tmp_path: Path) -> None:
    sentence = "1\tDogs\tdog\tNOUN\n2\tbark\tbark\tVERB\n\n"
    tables, reasons = chosen(tmp_path, "tag", 97 * sentence, "train.conllu")
    assert (tables["model"]["model_dim"], tables["training"]["optimizer"]) == (128, "muon")
    assert tables["training"]["metric"] == "word_accuracy" and tables["training"]["epochs"] == 40
    assert "97 training examples" in reasons and "pre-trained" in reasons


def test_more_words_are_seen_less_often() -> None:
    epochs = [
        choose_settings("classify", Amount(count, 11 * count)).tables["training"]["epochs"]
        for count in (997, 9973, 99_991)
    ]
    assert epochs == sorted(epochs, reverse=True) and epochs[-1] == 3
    assert choose_settings("classify", Amount(99_991, 10**6)).tables["model"].get("model_dim") is None  # bert_mini's


def test_questions_about_contexts_get_a_memory_network(tmp_path: Path) -> None:
    story = "1 Mary went to the hall.\n2 Where is Mary?\thall\t1\n"
    tables, reasons = chosen(tmp_path, "classify", 97 * story, "qa1.txt", format="babi")
    assert (tables["model"]["hops"], tables["training"]["bucket_size"], tables["data"]["max_length"]) == (3, 32, 480)
    assert tables["model"]["linear_updates"] < tables["training"]["updates"] == 139
    assert tables["training"]["metric"] == "label_accuracy" and "memory network" in reasons


def test_a_linear_start_must_end_before_the_updates_do(tmp_path: Path) -> None:
    path = tmp_path / "qa1.txt"
    path.write_text(97 * "1 Mary went to the hall.\n2 Where is Mary?\thall\t1\n")
    data = {"data": {"objective": "classify", "train": {"path": str(path), "format": "babi"}}}
    with pytest.raises(SettingsError, match="linear_updates = 64 leaves none of 50"):
        read_recipe(None, ["training.updates=50"], data)
    planned, _ = read_recipe(None, ["training.time_budget='5m'"], data)
    with pytest.raises(SettingsError, match="linear_updates=25"):
        planned.with_updates(50)


def test_pre_training_is_that_of_bert(tmp_path: Path) -> None:
    tables, _ = chosen(tmp_path, "mask", "a sentence\n", "text.txt")
    assert (tables["training"]["optimizer"], tables["training"]["updates"]) == ("adamw", 20_000)


@pytest.mark.parametrize("change", ["training.updates=50", "training.optimizer=adamw", "model.model_dim=64"])
def test_one_setting_leaves_the_others_as_chosen(tmp_path: Path, change: str) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("good\tyes\nbad\tno\n")
    recipe, _ = read_recipe(None, [change], {"data": {"objective": "classify", "train": {"path": str(path)}}})
    assert recipe.training.metric == "label_accuracy" and recipe.model.to_table()["num_layers"] == 3
