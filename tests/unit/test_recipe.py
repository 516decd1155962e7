"""The recipe: read, laid over each other in the right order, saved, and carried out to the same bytes each time."""

from __future__ import annotations

import shutil
import signal
import threading
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from tests.unit.training.example import TABLES, Listener, recipe
from transduce.config import merge, write_toml
from transduce.errors import CannotCreate, MissingInput, ModelFolderError, SettingsError, TransduceError
from transduce.model_folder import load_model, load_weights
from transduce.models.rnn import RnnConfig
from transduce.models.transformer import TransformerConfig, small
from transduce.recipe import Recipe, read_recipe, resume_recipe
from transduce.run import train
from transduce.storage.atomic import read_json
from transduce.storage.journal import read_journal
from transduce.storage.layout import MANIFEST
from transduce.storage.manifest import save_manifest
from transduce.tasks.catalog import prepare
from transduce.training.interruption import Interrupted
from transduce.training.reporter import Step

in_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(),
    reason="signals come to the main thread only; run pytest without a plugin that runs tests elsewhere",
)
TASK = {"task": "copy", "size": 31, "max_length": 5, "symbols": 7}


def write(folder: Path, tables: dict[str, Any]) -> Path:
    path = folder / "recipe.toml"
    path.write_text(write_toml(tables), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "tables",
    [
        {"data": {"train": TASK}},
        TABLES,
        {"data": {"train": {"source": "a.txt", "target": "b.txt"}, "test": {"path": "c.tsv"}, "source_language": "de"}},
        {"data": {"train": TASK}, "model": {"preset": "luong"}, "search": {"method": "greedy", "max_length": 7}},
        {"data": {"train": TASK}, "model": {"preset": "paper_big", "num_layers": 2, "positions": "learned"}},
        {"data": {"train": TASK}, "training": {"betas": [0.8, 0.9], "source_vectors": "v.txt", "freeze_vectors": True}},
        {
            "data": {"train": TASK},
            "tokenizer": {"joint": False, "target_kind": "word"},
            "model": {"tied_embeddings": "target"},
        },
    ],
    ids=range(7),
)
def test_a_recipe_written_and_read_back_is_the_same(tables: dict[str, Any]) -> None:
    first = Recipe.from_tables(tables, "a test")
    text = first.to_toml()
    again = Recipe.from_tables(tomllib.loads(text), "a test")
    assert again == first
    assert again.to_toml() == text


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"date": {}}, "recipe.toml has no table 'date'; did you mean 'data'?"),
        ({"data": {"train": TASK}, "traning": {}}, "has no table 'traning'; did you mean 'training'?"),
        ({"data": {"train": TASK}, "model": {"num_head": 2}}, "setting 'num_head'; did you mean 'num_heads'?"),
        ({"data": {"train": TASK}, "training": {"warmups": 1}}, "setting 'warmups'; did you mean 'warmup'?"),
        ({"data": {"train": TASK}, "search": {"beam_sise": 1}}, "setting 'beam_sise'; did you mean 'beam_size'?"),
        ({"data": {"trian": TASK}}, "setting 'trian'; did you mean 'train'?"),
        ({"data": {"train": TASK | {"sise": 3}}}, "setting 'sise'; did you mean 'size'?"),
        ({"data": {"train": TASK}, "tokenizer": {"size": 100}}, "recipe.toml: tokenizer: unknown setting 'size'"),
        ({"data": {"train": TASK}, "model": {"preset": "tinny"}}, "preset 'tinny'; did you mean 'tiny'?"),
        ({"data": {"train": TASK}, "model": {"name": "lstm"}}, "model 'lstm'"),
        ({"data": {"train": TASK}, "model": {"name": "transformer", "preset": "luong"}}, "'luong' is a rnn"),
        ({"data": 3}, "must be a table"),
        ({"model": {}}, "needs a table [data]"),
        ({"data": {"train": TASK}, "training": {"average_checkpoints": 7}}, "average_checkpoints = 7 needs keep_last"),
        ({"data": {"train": TASK}, "training": {"weight_decay": 0.1}}, "weight_decay needs optimizer"),
        ({"data": {"train": TASK}, "training": {"metric": "bleu", "decode_examples": 0}}, "needs translations"),
        ({"data": {"train": TASK}, "training": {"metric": "label_accuracy"}}, "is for text encoders"),
        ({"data": {"train": TASK}, "training": {"freeze_vectors": True}}, "needs source_vectors or target_vectors"),
    ],
    ids=range(18),
)
def test_what_makes_no_sense_is_rejected_with_the_file_and_a_suggestion(
    tmp_path: Path, tables: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, tables | ({"training": {}} if "data" in tables and "training" not in tables else {}))
    with pytest.raises(SettingsError) as refusal:
        read_recipe(path)
    assert message in str(refusal.value)


def test_the_command_line_goes_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "data": {"train": TASK},
            "model": {"preset": "small", "num_layers": 3, "dropout": 0.2},
            "search": {"beam_size": 3},
        },
    )
    found, reasons = read_recipe(
        path, ["model.num_layers=2", "training.metric=exact_match", "search.length_penalty = 1"]
    )
    assert reasons == []
    assert found.model == small().but(num_layers=2, dropout=0.2)
    assert (found.training.metric, found.search.beam_size, found.search.length_penalty) == ("exact_match", 3, 1.0)


def test_the_corpora_of_the_command_line_go_over_the_files(tmp_path: Path) -> None:
    """`base` is what options like --source name: whole corpora, which take the place of the file's."""
    path = write(tmp_path, {"data": {"train": {"path": "other.tsv"}, "max_length": 77}, "training": {}})
    found, _ = read_recipe(path, base={"data": {"train": TASK}})
    assert (found.data.max_length, found.data.train.size) == (77, 31)


def test_a_preset_on_the_command_line_keeps_the_files_other_settings(tmp_path: Path) -> None:
    path = write(tmp_path, {"data": {"train": TASK}, "model": {"dropout": 0.25}})
    found, _ = read_recipe(path, ["model.preset=small"])
    assert found.model == small().but(dropout=0.25)


def test_without_a_file_everything_is_chosen_from_the_corpus_and_changes_go_over_it() -> None:
    found, reasons = read_recipe(None, ["training.updates=7"], base={"data": {"train": TASK}})
    assert found.tokenizer.kinds == ("word", "word")
    assert isinstance(found.model, TransformerConfig)
    assert found.training.updates == 7
    assert "31 training pairs" in reasons


def test_a_model_of_ones_own_replaces_the_chosen_one_whole() -> None:
    found, _ = read_recipe(None, ["model.name=rnn"], base={"data": {"train": TASK}})
    assert found.model == RnnConfig()


@pytest.mark.parametrize("preset", ["tiny", "t5_mini"])
def test_a_preset_with_one_matrix_gives_way_to_two_vocabularies_and_a_person_does_not(preset: str) -> None:
    """Symbols become words of two vocabularies, which is chosen here; that a preset shares a matrix is not a wish."""
    base = {"data": {"train": TASK}}
    found, reasons = read_recipe(None, [f"model.preset={preset}"], base=base)
    assert not found.tokenizer.joint and found.model.tied_embeddings == "target"
    assert reasons[-1] == "two vocabularies: separate embeddings (model.tied_embeddings = 'target')"
    with pytest.raises(SettingsError, match=r"set tokenizer\.joint = true or model\.tied_embeddings = 'target'"):
        read_recipe(None, [f"model.preset={preset}", "model.tied_embeddings=all"], base=base)
    joint, reasons = read_recipe(None, [f"model.preset={preset}", "tokenizer.kind=word"], base=base)
    assert joint.model.tied_embeddings == "all" and "two vocabularies" not in str(reasons)


def test_a_language_model_of_one_position_is_rejected_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n")
    base = {"data": {"train": {"text": str(tmp_path / "a.txt")}}}
    for more in ([], ["data.block_size=2"]):
        with pytest.raises(SettingsError, match=r"^the command line: a model of 1 positions is too short"):
            read_recipe(None, ["model.preset=gpt_mini", "model.max_positions=1", *more], base=base)
    assert read_recipe(None, ["model.preset=gpt_mini", "model.max_positions=2"], base=base)[0].data.block_size == 2


def test_a_file_with_any_of_the_three_tables_is_taken_as_it_is(tmp_path: Path) -> None:
    found, reasons = read_recipe(write(tmp_path, {"data": {"train": TASK}, "training": {"updates": 5}}))
    assert reasons == []
    assert found.model == TransformerConfig()


def test_a_missing_or_broken_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[data\n")
    with pytest.raises(SettingsError, match="not valid TOML"):
        read_recipe(tmp_path / "bad.toml")


@dataclass
class Impatient(Listener):
    """Sends the process a signal after some updates."""

    stops: list[int] = field(default_factory=list)

    def step(self, step: Step) -> None:
        super().step(step)
        if step.update in self.stops:
            signal.raise_signal(signal.SIGTERM)


def files(run: Path) -> dict[str, bytes]:
    """All that a run is, without what depends on the hour and without the lock."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("timing.jsonl", ".lock")
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run that averages; nobody writes to it."""
    changes = {
        "training": {
            "updates": 17,
            "average_checkpoints": 2,
            "keep_last": 2,
            "gradient_accumulation": 2,
            "batch_tokens": 53,
        }
    }
    return train(recipe(**changes), tmp_path_factory.mktemp("runs") / "first")


def test_a_run_folder_holds_what_it_should(first: Path) -> None:
    names = files(first).keys()
    assert {"recipe.toml", "journal.jsonl", "model/model.safetensors", "model/README.md"} <= names
    assert {name.split("/")[1] for name in names if name.startswith("checkpoints/")} >= {
        "update-00000015",
        "update-00000017",
    }
    assert (first / "timing.jsonl").exists()
    events = [line["event"] for line in read_journal(first / "journal.jsonl")]
    assert events[0] == "began"
    assert events[-1] == "final"


def test_the_filled_in_recipe_of_a_run_gives_the_same_run_to_the_last_byte(first: Path, tmp_path: Path) -> None:
    """Weights, moments, journal, prepared data, model folder with its card, manifests: everything but the times."""
    torch.manual_seed(99)
    train(first / "recipe.toml", tmp_path / "again")
    assert files(tmp_path / "again") == files(first)


@in_main_thread
@pytest.mark.parametrize("stops", [[2], [11, 16]], ids=str)
def test_a_run_stopped_by_signals_and_resumed_is_the_same_run_to_the_last_byte(
    first: Path, tmp_path: Path, stops: list[int]
) -> None:
    run, message = tmp_path / "run", []
    started = resume_recipe(first)
    for place, _ in enumerate(stops):
        with pytest.raises(Interrupted) as stop:
            train(started, run, resume=place > 0, reporter=Impatient(stops=stops))
        message.append(str(stop.value))
        assert stop.value.exit_code == 143
    assert [f"stopped at update {update}" in text for update, text in zip(stops, message, strict=True)] == [True] * len(
        stops
    )
    train(resume_recipe(run), run, resume=True)
    assert files(run) == files(first)


def test_resuming_a_run_that_is_over_changes_nothing(first: Path) -> None:
    before = files(first)
    train(resume_recipe(first), first, resume=True)
    assert files(first) == before


@in_main_thread
def test_a_stop_does_not_change_what_is_averaged_in_the_end(tmp_path: Path) -> None:
    """Without validation pairs nothing can be said against the average; the checkpoint of the stop is no part of it."""
    averaging = recipe(training={"updates": 17, "average_checkpoints": 2, "keep_last": 2})
    averaging = replace(averaging, data=averaging.data.but(validation=None, validation_fraction=0))
    whole = train(averaging, tmp_path / "whole")
    paths = [whole / f"checkpoints/update-{update:08d}/model.safetensors" for update in (15, 17)]
    one, two = (load_weights(path) for path in paths)
    for name, weight in load_model(whole).model.named_parameters():
        torch.testing.assert_close(weight, (one[name].double() + two[name].double()).float() / 2, rtol=1e-6, atol=0)
    assert "average of the checkpoints of updates 15, 17" in (whole / "model/README.md").read_text()
    with pytest.raises(Interrupted):
        train(averaging, tmp_path / "run", reporter=Impatient(stops=[16]))
    train(resume_recipe(tmp_path / "run"), tmp_path / "run", resume=True)
    assert files(tmp_path / "run") == files(whole)


def test_without_averaging_the_model_is_the_best_checkpoint(tmp_path: Path) -> None:
    run = train(recipe(training={"updates": 6, "validate_every": 2, "schedule": "constant"}), tmp_path / "run")
    validations = [line for line in read_journal(run / "journal.jsonl") if line["event"] == "validation"]
    best = min(validations, key=lambda line: line["loss"])["update"]
    weights = load_weights(run / f"checkpoints/update-{best:08d}/model.safetensors")
    assert all(torch.equal(weight, weights[name]) for name, weight in load_model(run).model.named_parameters())


def test_a_folder_that_holds_a_run_or_anything_else_is_not_touched(first: Path, tmp_path: Path) -> None:
    before = files(first)
    with pytest.raises(CannotCreate, match="already holds a run"):
        train(recipe(), first)
    assert files(first) == before
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CannotCreate, match="not a run"):
        train(recipe(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_run_goes_on_only_with_the_recipe_it_was_begun_with(first: Path) -> None:
    begun = resume_recipe(first)
    for changed in (
        replace(begun, training=begun.training.but(learning_rate=0.5)),
        replace(begun, training=begun.training.but(updates=begun.training.updates - 1)),
        replace(begun, model=begun.model.but(dropout=0.0)),
    ):
        with pytest.raises(TransduceError):
            train(changed, first, resume=True)


def test_a_run_goes_on_only_with_the_data_it_was_begun_with(first: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(first, tmp_path / "run"))
    shutil.rmtree(run / "data")
    begun = resume_recipe(run)
    other = replace(begun, data=begun.data.but(train={**TASK, "size": 97}))
    prepare(other.data, other.tokenizer, run / "data")
    with pytest.raises(ModelFolderError, match="was saved with data"):
        train(begun, run, resume=True)


def test_there_is_nothing_to_resume_where_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="no run to resume"):
        resume_recipe(tmp_path)


def test_training_leaves_the_process_as_it_found_it(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    train(recipe(training={"updates": 1, "threads": 2}), tmp_path / "run")
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.rand(3), expected)


def test_the_machines_threads_are_filled_in_and_saved(tmp_path: Path) -> None:
    plain = Recipe.from_tables(merge(TABLES, {"training": {"updates": 1}}) | {"search": {}}, "a test")
    plain = replace(plain, training=plain.training.but(threads=None))
    saved = resume_recipe(train(plain, tmp_path / "run"))
    assert (saved.training.threads, saved.training.device) == (torch.get_num_threads(), "cpu")


def test_a_prepared_corpus_is_used_as_it_is(first: Path, tmp_path: Path) -> None:
    run = train(resume_recipe(first), tmp_path / "run", prepared=first / "data")
    assert (run / "data").resolve() == (first / "data").resolve()
    assert (run / "model/model.safetensors").read_bytes() == (first / "model/model.safetensors").read_bytes()


def test_a_run_on_a_prepared_corpus_can_be_resumed(first: Path, tmp_path: Path) -> None:
    run = train(resume_recipe(first), tmp_path / "run", prepared=first / "data")
    train(resume_recipe(run), run, resume=True)
    train(resume_recipe(run), run, resume=True, prepared=first / "data")


def test_a_prepared_corpus_that_was_moved_is_missed_by_its_name(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first / "data", tmp_path / "prepared")
    run = train(resume_recipe(first), tmp_path / "run", prepared=tmp_path / "prepared")
    (tmp_path / "prepared").rename(tmp_path / "elsewhere")
    with pytest.raises(MissingInput, match=r"its corpus was prepared in .*prepared, which is missing"):
        train(resume_recipe(run), run, resume=True)


def test_a_run_from_before_a_setting_existed_is_resumed(first: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(first, run)
    for place in (run / "checkpoints").iterdir():
        manifest = read_json(place / MANIFEST)
        del manifest["fingerprint"]["settings"]["training"]["recombination"]
        manifest["fingerprint"]["recipe"] = "0" * 64
        save_manifest(place, manifest)
    recipe_file = run / "recipe.toml"
    lines = recipe_file.read_text().splitlines(keepends=True)
    recipe_file.write_text("".join(line for line in lines if not line.startswith("recombination")))
    train(resume_recipe(run), run, resume=True)
    recipe_file.write_text(recipe_file.read_text().replace("learning_rate = 0.01", "learning_rate = 0.02"))
    with pytest.raises(ModelFolderError, match=r"was saved with training.learning_rate 0.01, now it is 0.02"):
        train(resume_recipe(run), run, resume=True)


def test_a_checkpoint_from_before_settings_were_kept_names_the_hashes(first: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(first, run)
    for place in (run / "checkpoints").iterdir():
        manifest = read_json(place / MANIFEST)
        del manifest["fingerprint"]["settings"]
        save_manifest(place, manifest)
    train(resume_recipe(run), run, resume=True)
    path = run / "recipe.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.01", "learning_rate = 0.02"))
    with pytest.raises(ModelFolderError, match=r"was saved with recipe [0-9a-f]{64}, now it is [0-9a-f]{64};"):
        train(resume_recipe(run), run, resume=True)


@pytest.mark.parametrize("freeze", [True, False])
def test_embeddings_start_from_a_file_of_vectors_and_may_stay_there(tmp_path: Path, freeze: bool) -> None:
    vectors = tmp_path / "vectors.txt"
    numbers = " ".join(str(place / 4) for place in range(14))
    vectors.write_text(f"a {numbers}\nb {numbers}\nunheard {numbers}\n")
    listener = Listener()
    run = train(
        recipe(
            model={"tied_embeddings": "none"},
            training={"updates": 5, "average_checkpoints": 1, "source_vectors": str(vectors), "freeze_vectors": freeze},
        ),
        tmp_path / "run",
        reporter=listener,
    )
    assert any("vectors for 2 of 15 source tokens" in warning for warning in listener.warnings)
    loaded = load_model(run)
    tokens = torch.tensor(loaded.source_tokenizer.encode("a b"))
    found = loaded.model.source_embedding(tokens)
    expected = torch.tensor([[place / 4 for place in range(14)]] * 2)
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6) is freeze
    names = load_weights(run / "checkpoints/update-00000005/optimizer.safetensors").keys()
    assert ("exp_avg/source_embedding.weight" in names) is not freeze


def test_a_recipe_file_is_enough_in_python(tmp_path: Path) -> None:
    path = write(tmp_path, merge(TABLES, {"training": {"updates": 1}}))
    run = transduce.train(str(path), str(tmp_path / "run"))
    assert run == tmp_path / "run"
    assert transduce.load(run).translate(["a b c"])
