"""The Python API: train, fine_tune and evaluate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import transduce
from tests.unit.training.example import TABLES, recipe
from transduce.cli.main import run
from transduce.errors import DataError, SettingsError
from transduce.recipe import resume_recipe

OPTIONS = transduce.EvaluationOptions(metrics=("exact_match",), samples=7)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "test.tsv").write_text("a b c\tc b a\nd e\te d\n", encoding="utf-8")
    return transduce.train(recipe(training={"updates": 5}), folder / "run")


def test_evaluate_returns_what_the_command_prints(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(trained.parent / "test.tsv")
    found = transduce.evaluate(trained, path=path, options=OPTIONS)
    loaded = transduce.evaluate(transduce.load(trained), path=path, options=OPTIONS)
    assert found.to_json() == loaded.to_json() and found.to_json()["sentences"] == 2
    options = ["--path", path, "--metric", "exact_match", "--samples", "7"]
    assert run(["evaluate", str(trained), *options]) == 0
    assert capsys.readouterr().out.splitlines() == found.lines()
    assert run(["evaluate", str(trained), *options, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": str(trained), **found.to_json()}


def test_a_model_is_compared_with_another(trained: Path) -> None:
    found = transduce.evaluate(trained, path=str(trained.parent / "test.tsv"), against=trained, options=OPTIONS)
    assert found.to_json()["against"].keys() == {str(trained)} and "no significant difference" in found.lines()[-1]


def test_fine_tuning_takes_over_the_model_and_chooses_the_rest(trained: Path) -> None:
    folder = transduce.fine_tune(trained, TABLES["data"], trained.parent / "tuned", updates=3, validate_every=3)
    tuned, before = resume_recipe(folder), resume_recipe(trained)
    assert tuned.training.initial_checkpoint == str(trained) and tuned.training.updates == 3
    assert tuned.model == before.model and tuned.tokenizer.folder == str(trained)
    assert tuned.training.learning_rate == pytest.approx(before.training.learning_rate / 10)


def test_lists_are_evaluated_like_files(trained: Path) -> None:
    folder = trained.parent
    sources, references, others = ["a b c", "d e"], ["c b a", "e d"], ["c b a", "d"]
    for name, lines in (("s.txt", sources), ("r.txt", references), ("o.txt", others)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = {"metrics": "chrf", "samples": 7}
    files = transduce.evaluate(trained, folder / "s.txt", folder / "r.txt", **options)
    lists = transduce.evaluate(trained, sources, references, **options)
    assert lists.to_json() == files.to_json() and repr(lists) == "\n".join(lists.lines())
    assert lists["chrf"] == lists.to_json()["scores"]["chrf"]["value"]
    both = transduce.evaluate(trained, folder / "s.txt", [folder / "r.txt", folder / "o.txt"], **options)
    assert transduce.evaluate(trained, sources, [references, others], **options).to_json() == both.to_json()
    with pytest.raises(KeyError, match="bleu was not computed"):
        lists["bleu"]
    for given, kind, words in (
        ((sources, references[1:]), DataError, "references has 1"),
        ((sources, "r.txt"), TypeError, "list"),
        (([], []), DataError, "empty"),
    ):
        with pytest.raises(kind, match=words):
            transduce.evaluate(trained, *given, **options)
    with pytest.raises(SettingsError, match="did you mean 'metrics'"):
        transduce.evaluate(trained, sources, references, metric="bleu")


def test_a_test_set_is_needed(trained: Path) -> None:
    with pytest.raises(SettingsError, match="--source and --target"):
        transduce.evaluate(trained)
