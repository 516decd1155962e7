"""Language models and T5 trained on plain text by the one trainer: losses, exact resuming, samples, refusals."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch

from tests.unit.training.example import Listener, StopAt
from transduce.config import Table, merge
from transduce.errors import SettingsError
from transduce.inference.load import load_translator
from transduce.model_folder import load_model
from transduce.recipe import Recipe, read_recipe
from transduce.run import train
from transduce.storage.layout import DATA
from transduce.storage.manifest import sha256
from transduce.tasks.catalog import load_prepared
from transduce.training.interruption import Interrupted

WORDS = [
    "the",
    "sea",
    "rose",
    "and",
    "fell",
    "under",
    "a",
    "pale",
    "moon",
    "while",
    "ships",
    "slept",
    "in",
    "their",
    "harbour",
]
BLOCK = 23


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = random.Random(5)
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    lines = [" ".join(draw.choice(WORDS) for _ in range(7)) + "." for _ in range(60)]
    path.write_text("".join(f"{line}\n" + "\n" * (at % 5 == 4) for at, line in enumerate(lines)))
    return path


def tables(corpus: Path, **changes: Table) -> Table:
    base: Table = {
        "data": {"train": {"text": str(corpus)}, "validation_fraction": 0.1},
        "tokenizer": {"kind": "character"},
        "model": {
            "name": "gpt",
            "model_dim": 14,
            "num_heads": 2,
            "ffn_dim": 19,
            "num_layers": 1,
            "max_positions": BLOCK,
            "dropout": 0.1,
        },
        "training": {
            "threads": 1,
            "batch_tokens": 101,
            "updates": 17,
            "schedule": "constant",
            "warmup": 0,
            "log_every": 3,
            "learning_rate": 0.01,
            "validate_every": 5,
            "optimizer": "adamw",
        },
    }
    if "cell" in changes.get("model", {}):  # a recurrent model has other sizes
        base["model"] = {}
    return merge(base, changes)


SPANS: Table = {
    "data": {"objective": "span_corruption", "block_size": 41},
    "model": {"name": "t5", "max_positions": 1024},
    "training": {"batch_tokens": 89},
}
RECURRENT: Table = {
    "data": {"block_size": BLOCK},
    "model": {"name": "recurrent_lm", "cell": "lstm", "model_dim": 13, "num_layers": 2, "dropout": 0.1},
}
KINDS = {"gpt": {}, "t5": SPANS, "recurrent_lm": RECURRENT}


def recipe(corpus: Path, **changes: Table) -> Recipe:
    return Recipe.from_tables(tables(corpus, **changes), "a test")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_ends_with_the_same_bytes(kind: str, corpus: Path, tmp_path: Path) -> None:
    whole, recorded = tmp_path / "whole", Listener()
    wanted = recipe(corpus, **merge(KINDS[kind], {"training": {"updates": 60, "validate_every": 30}}))
    train(wanted, whole, reporter=recorded)
    assert recorded.steps[-1].epoch > 0  # blocks have moved
    stopped = tmp_path / "stopped"
    for update in (13, 44):
        stop = StopAt(update=update)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr("transduce.run.catch_signals", lambda _, stop=stop: Deaf(stop))
            train(wanted, stopped, resume=stopped.exists(), reporter=stop)
    train(wanted, stopped, resume=True)
    assert (whole / "journal.jsonl").read_bytes() == (stopped / "journal.jsonl").read_bytes()
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert sha256(whole / "model" / name) == sha256(stopped / "model" / name)


class Deaf:
    """Stands where signals are listened to."""

    def __init__(self, stop: StopAt) -> None:
        self.stop = stop

    def __enter__(self) -> object:
        return self.stop.interruption

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Listener]:
    recorded = Listener()
    return train(recipe(corpus), tmp_path_factory.mktemp("run") / "run", reporter=recorded), recorded


def test_validation_is_the_loss_over_every_token_and_its_bits_over_the_bytes(trained: tuple[Path, Listener]) -> None:
    folder, recorded = trained
    contents = load_model(folder)
    prepared = load_prepared(folder / DATA, block_size=BLOCK)
    assert prepared.validation is not None and prepared.report.validation is not None
    count, loss = 0, 0.0
    for row in range(len(prepared.validation)):  # one block after the other, by torch's own cross-entropy
        tokens = torch.tensor(prepared.validation.blocks[row].astype(int))[None]
        memory = contents.transducer.encode(tokens[:, :0], tokens[:, :0].bool())
        with torch.no_grad():
            scores = contents.transducer.logits(contents.transducer(tokens[:, :-1], memory))
        loss += float(torch.nn.functional.cross_entropy(scores[0], tokens[0, 1:], reduction="sum"))
        count += tokens.shape[1] - 1
    final = json.loads((folder / "journal.jsonl").read_text().splitlines()[-1])
    text = prepared.report.validation.text
    assert text is not None
    assert count == prepared.report.validation.target.tokens == text.characters + prepared.report.validation.kept
    assert final["event"] == "final" and final["loss"] == pytest.approx(loss / count, rel=1e-5)
    assert final["bits_per_byte"] == pytest.approx(loss / math.log(2) / text.bytes, rel=1e-5)
    best = next(found for found in recorded.validations if found.loss == min(one.loss for one in recorded.validations))
    assert best.perplexity == pytest.approx(math.exp(best.loss)) and best.scores == {}


def test_samples_are_continuations_of_validation_text(trained: tuple[Path, Listener], corpus: Path) -> None:
    _, recorded = trained
    text = corpus.read_text()
    for found in recorded.validations:
        assert len(found.samples) == 3
        assert all(sample.source and sample.source in text for sample in found.samples)
        assert any(sample.translation for sample in found.samples)
    assert recorded.plans[0].rows == "blocks"


def test_the_card_says_what_the_model_is_for(trained: tuple[Path, Listener]) -> None:
    card = (trained[0] / "model" / "README.md").read_text()
    assert "transduce generate" in card and "bits per byte" in card and "pairs" not in card


@pytest.mark.parametrize("kind", KINDS)
def test_notes_and_card_name_the_language_and_fine_tuning_keeps_it(kind: str, corpus: Path, tmp_path: Path) -> None:
    short: Table = {"data": {"language": "en-GB"}, "training": {"updates": 1, "validate_every": 1}}
    folder = train(recipe(corpus, **merge(KINDS[kind], short)), tmp_path / "run")
    assert load_model(folder).notes["language"] == "en-GB"
    assert "language: [en-GB]" in (folder / "model" / "README.md").read_text()
    base: Table = {"data": tables(corpus, **KINDS[kind])["data"]}
    found, _ = read_recipe(None, [f"training.initial_checkpoint={folder}"], base=base)
    assert found.data.language == "en-GB"


def test_a_text_that_repeats_itself_is_learnt(tmp_path: Path) -> None:
    """The alphabet over and over: after a letter there is one way to go on."""
    (tmp_path / "a.txt").write_text("abcdefghijklmnopqrstuvwxyz" * 200)
    changes: Table = {
        "model": {"dropout": 0.0},
        "training": {"updates": 150, "batch_tokens": 460, "validate_every": 150},
    }
    folder = train(recipe(tmp_path / "a.txt", **changes), tmp_path / "run")
    final = json.loads((folder / "journal.jsonl").read_text().splitlines()[-1])
    assert final["loss"] < 0.1 < math.log(26)


def test_what_t5_has_learned_from_text_goes_on_with_pairs(corpus: Path, tmp_path: Path) -> None:
    few = {"training": {"updates": 2, "validate_every": 2}}
    before = train(recipe(corpus, **merge(SPANS, few)), tmp_path / "spans")
    (tmp_path / "tasks.tsv").write_text("".join(f"say {word}:\t{word}\n" for word in WORDS))
    base: Table = {"data": {"train": {"path": str(tmp_path / "tasks.tsv")}}}
    found, reasons = read_recipe(None, [f"training.initial_checkpoint={before}", "training.updates=2"], base=base)
    assert found.tokenizer.joint and found.model == recipe(corpus, **SPANS).model
    assert any("keeping the" in reason and "tokens of" in reason for reason in reasons)
    assert isinstance(load_translator(train(found, tmp_path / "tasks"))("say sea:"), str)


def test_t5_learns_from_pairs_of_text_with_what_to_do_before_them(tmp_path: Path) -> None:
    """Fine-tuning as the paper does it: a task is some words before the source, and one model does several."""
    letters = "abcdefghijk"
    tasks = {"say": lambda at: at, "after": lambda at: at + 1, "before": lambda at: at - 1}
    rows = [(f"{task}: {letters[at]}", letters[go(at)]) for at in range(1, 10) for task, go in tasks.items()]
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    wanted: Table = {
        "data": {"train": {"path": str(tmp_path / "pairs.tsv")}, "validation_fraction": 0.0},
        "tokenizer": {"kind": "word", "min_frequency": 1},
        "model": {"preset": "t5_mini", "model_dim": 32, "num_heads": 2, "ffn_dim": 64, "num_layers": 1, "dropout": 0.0},
        "training": {
            "threads": 1,
            "batch_tokens": 100,
            "updates": 120,
            "schedule": "constant",
            "warmup": 10,
            "learning_rate": 5e-3,
            "validate_every": 120,
            "label_smoothing": 0.0,
        },
    }
    folder = train(Recipe.from_tables(wanted, "a test"), tmp_path / "run")
    asked = ["say: e", "after: e", "before: e", "before: j", "after: b"]
    assert load_translator(folder).translate(asked) == ["e", "f", "d", "i", "c"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"name": "transformer"}}, "plain text is for a language model"),
        ({"data": {"objective": "span_corruption"}}, "needs a model with a source|has no source"),
        ({"tokenizer": {"joint": False}}, "one side and needs one tokenizer"),
        ({"training": {"metric": "bleu"}}, "is for pairs"),
        ({"training": {"bpe_dropout": 0.1}}, "bpe_dropout"),
        ({"training": {"target_vectors": "x"}}, "encoder-decoder models"),
        ({"data": {"block_size": 24}}, "data.block_size = 24 exceeds .*23"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changes: Table, sentence: str, corpus: Path) -> None:
    with pytest.raises(SettingsError, match=sentence) as caught:
        recipe(corpus, **changes)
    assert "\n" not in str(caught.value)


def test_a_language_model_rejects_pairs() -> None:
    with pytest.raises(SettingsError, match="gpt is a language model"):
        Recipe.from_tables({"data": {"train": {"task": "copy", "size": 9}}, "model": {"preset": "gpt_mini"}}, "a test")


def test_settings_are_chosen_by_how_much_text_there_is(corpus: Path) -> None:
    chosen, reasons = read_recipe(None, base={"data": {"train": {"text": str(corpus)}}})
    assert (chosen.tokenizer.kind, chosen.data.block_size, chosen.training.optimizer) == ("character", 256, "adamw")
    assert (chosen.training.schedule, chosen.training.label_smoothing) == ("cosine", 0.0)
    assert (chosen.search.method, chosen.search.temperature) == ("sample", 0.8)
    assert reasons[0].endswith("characters of text") and "gpt_mini" in reasons[2]
    spans, _ = read_recipe(None, ["data.objective=span_corruption"], {"data": {"train": {"text": str(corpus)}}})
    assert spans.tokenizer.sentinels == 100 and spans.data.block_size == 256
