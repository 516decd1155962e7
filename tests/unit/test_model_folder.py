"""A model folder: complete, or rejected with the name of the faulty file."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transduce.errors import MissingInput, ModelFolderError
from transduce.model_folder import (
    ModelFolder,
    find_model,
    load_model,
    load_weights,
    put_weights,
    save_model,
    save_weights,
)
from transduce.models.catalog import build
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.storage.atomic import read_json, write_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.layout import CHECKPOINT_KIND, JOURNAL, MANIFEST, MODEL_KIND, OPTIMIZER, PROGRESS, WEIGHTS
from transduce.storage.manifest import write_manifest
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer


def words(count: int) -> Tokenizer:
    text = [" ".join(f"w{number}" for number in range(count))]
    return train_tokenizer("word", text, TokenizerConfig(kind="word", min_frequency=1))


def small(sizes: VocabularySizes) -> tuple[AnyTransducer, TransformerConfig]:
    config = TransformerConfig(model_dim=6, num_heads=3, ffn_dim=7, num_layers=1, tied_embeddings="none")
    return build(config, sizes, seed=3), config


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model folder with a tokenizer for each side; nobody writes to it."""
    folder = tmp_path_factory.mktemp("models") / "small"
    source, target = words(5), words(7)
    model, config = small(VocabularySizes(source.size, target.size))
    save_model(folder, ModelFolder(model, config, source, target, {"source_language": "en"}), "# card\n")
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def test_what_was_saved_comes_back(saved: Path) -> None:
    found = load_model(saved)
    model, config = small(VocabularySizes(9, 11))
    assert (found.config, found.notes, found.model.sizes) == (config, {"source_language": "en"}, (9, 11))
    assert (found.source_tokenizer.size, found.target_tokenizer.size) == (9, 11)
    expected = dict(model.named_parameters())
    assert all(torch.equal(weight, expected[name]) for name, weight in found.model.named_parameters())


@pytest.mark.parametrize("seed", range(5))
def test_every_truncation_is_detected(copy: Path, seed: int) -> None:
    """Forty a seed."""
    draw, files = random.Random(seed), sorted(copy.iterdir())
    for _ in range(40):
        path = draw.choice(files)
        whole = path.read_bytes()
        path.write_bytes(whole[: draw.randrange(len(whole))])
        with pytest.raises(ModelFolderError):
            load_model(copy)
        path.write_bytes(whole)
    load_model(copy)


@pytest.mark.parametrize("seed", range(5))
def test_every_flipped_bit_is_detected(copy: Path, seed: int) -> None:
    """Forty a seed: in names, hashes, settings, tokenizers, the card and the weights, where safetensors sees none."""
    draw, files = random.Random(100 + seed), sorted(copy.iterdir())
    for _ in range(40):
        path = draw.choice(files)
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ModelFolderError):
            load_model(copy)
        path.write_bytes(whole)
    load_model(copy)


@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json", "README.md", MANIFEST],
)
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(ModelFolderError) as refusal:
        load_model(copy)
    assert name in str(refusal.value)


def test_a_strangers_file_beside_the_others_does_no_harm(copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")
    load_model(copy)


def changed_config(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    """Change the settings as somebody would who also mends the manifest."""
    table = read_json(folder / "config.json")
    change(table)
    write_json(folder / "config.json", table)
    (folder / MANIFEST).unlink()
    write_manifest(folder, MODEL_KIND)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.update(format=3), "format 3"),
        (lambda table: table.pop("format"), "format 1"),
        (lambda table: table.update(model="transfomer"), "did you mean 'transformer'?"),
        (lambda table: table["settings"].update(model_dim=8), "not divisible by num_heads 3"),
        (lambda table: table["settings"].update(ffn_dim=11), "has shape"),
        (lambda table: table["settings"].update(num_layers=2), "is missing"),
        (lambda table: table["settings"].update(heads=2), "unknown setting 'heads'"),
        (lambda table: table["vocabulary"].update(source=10), "has shape"),
        (lambda table: table.pop("vocabulary"), "vocabulary sizes"),
        (lambda table: table.update(vocabulary={"source": -3, "target": 11}), "config.json"),
        (lambda table: table.update(settings=None), "config.json"),
        (lambda table: table.update(task="language_modeling"), "the task 'language_modeling'"),
    ],
    ids=range(12),
)
def test_settings_that_do_not_fit_the_rest_are_rejected(
    copy: Path, change: Callable[[dict[str, object]], object], message: str
) -> None:
    changed_config(copy, change)
    with pytest.raises(ModelFolderError) as refusal:
        load_model(copy)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith(str(copy))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("output.weight"), "'output.weight' is missing (1 in all)"),
        (lambda weights: weights.update(extra=torch.zeros(3)), "'extra' (1 in all)"),
        (lambda weights: weights.update({"output.weight": torch.zeros(3, 5)}), "'output.weight' has shape (3, 5)"),
    ],
    ids=["missing", "foreign", "shape"],
)
def test_weights_of_another_model_are_rejected_and_nothing_is_copied(
    saved: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    model, _ = small(VocabularySizes(9, 11))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    weights = {name: weight + 1 for name, weight in load_weights(saved / "model.safetensors").items()}
    change(weights)
    with pytest.raises(ModelFolderError) as refusal:
        put_weights(model, weights, saved)
    assert message in str(refusal.value)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_saving_over_a_model_replaces_it_whole(copy: Path) -> None:
    joint = words(13)
    model, config = small(VocabularySizes(joint.size, joint.size))
    save_model(copy, ModelFolder(model, config, joint, joint), "# new\n")
    assert {path.name for path in copy.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
        MANIFEST,
    }
    found = load_model(copy)
    assert found.source_tokenizer is found.target_tokenizer
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_saving_that_fails_leaves_the_model_of_before(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    contents = load_model(copy)
    monkeypatch.setattr("transduce.model_folder.save_tokenizers", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_model(copy, contents, "# new\n")
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    assert [path.name for path in copy.parent.iterdir()] == ["copy"]


def test_a_run_stands_for_the_model_in_it(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "run" / "model")
    assert find_model(tmp_path / "run") == tmp_path / "run" / "model"
    assert find_model(tmp_path / "run" / "model") == tmp_path / "run" / "model"


def test_a_folder_that_has_no_model_is_rejected_for_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="no such folder"):
        find_model(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match="neither a run nor a model folder"):
        find_model(tmp_path)
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(ModelFolderError, match=r"no model yet.*transduce train --resume"):
        find_model(tmp_path)


def test_a_file_that_is_no_safetensors_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"\x80\x04\x95 a pickle")
    with pytest.raises(ModelFolderError, match="not a safetensors file"):
        load_weights(tmp_path / "weights")
    with pytest.raises(ModelFolderError, match="cannot be read"):
        load_weights(tmp_path / "nothing")


def test_weights_are_written_as_the_same_bytes_each_time(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(3, 5, generator=generator) for name in ("b", "a", "c")}
    save_weights(tmp_path / "one", weights)
    save_weights(tmp_path / "two", {name: weights[name].clone() for name in ("c", "a", "b")})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_manifest_holds_size_and_hash_of_every_other_file(saved: Path) -> None:
    import hashlib

    manifest = json.loads((saved / MANIFEST).read_text())
    assert manifest["kind"] == MODEL_KIND
    assert manifest["files"] == {
        path.name: {"size": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(saved.iterdir())
        if path.name != MANIFEST
    }


def test_a_checkpoint_and_a_journal_can_be_read_without_training(tmp_path: Path) -> None:
    """A server shows both, and its layer does not import the trainer."""
    for number, name in enumerate((WEIGHTS, OPTIMIZER)):
        place = SavedCheckpoints(tmp_path).path(3)
        place.mkdir(parents=True, exist_ok=True)
        save_weights(place / name, {"a": torch.tensor([number + 5.0])})
    write_json(place / PROGRESS, {})
    write_manifest(place, CHECKPOINT_KIND, fingerprint={"seed": 7})
    (tmp_path / JOURNAL).write_text('{"event": "began"}\n')
    script = (
        "import sys; from pathlib import Path\n"
        "from transduce.model_folder import checkpoint_weights; from transduce.storage.journal import read_journal\n"
        "run = Path(sys.argv[1])\n"
        "print(checkpoint_weights(run, 3)['a'].item(), read_journal(run / 'journal.jsonl')[0]['event'])\n"
        "assert not [name for name in sys.modules if name.startswith('transduce.training')]\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "5.0 began\n"
