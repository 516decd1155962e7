"""`transduce predict`, `embed`, `evaluate` and `inspect` with text encoders, and the wrong command for a folder."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import transduce
from tests.babi_corpus import simple_stories
from transduce.cli.main import run
from transduce.model_folder import load_model

RECIPE = """
[data]
objective = "{task}"
train = {{path = "{path}"}}
max_length = 16
validation_fraction = 0.1

[tokenizer]
kind = "wordpiece"
vocab_size = 120
min_frequency = 1

[model]
name = "bert"
model_dim = 16
ffn_dim = 24
num_heads = 2
num_layers = 1
max_positions = 16

[training]
batch_tokens = 256
updates = 12
validate_every = 6
threads = 1
learning_rate = 0.01
schedule = "constant"
warmup = 2
label_smoothing = 0.0
"""
TEXTS = {
    "classify": "".join(f"the film was {('fine', 'dull')[n % 2]} {n}\t{'+-'[n % 2]}\n" for n in range(60)),
    "tag": "\n".join(f"Anna{n} B-PER\nsees O\nRome{n} B-LOC\n" for n in range(40)),
    "mask": "".join(f"the film was fine {n}\nthe play is dull\n\n" for n in range(40)),
    "answer": "".join(
        json.dumps(
            {
                "question": "where ?",
                "context": f"{n} is in Rome",
                "answers": [{"text": "Rome", "answer_start": len(f"{n} is in ")}],
            }
        )
        + "\n"
        for n in range(40)
    ),
}
FILES = {"classify": "a.tsv", "tag": "a.conll", "mask": "a.txt", "answer": "a.jsonl"}


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for each task; tests do not change them."""
    folder = tmp_path_factory.mktemp("readers")
    stderr, sys.stderr = sys.stderr, io.StringIO()
    try:
        for task, text in TEXTS.items():
            path = folder / FILES[task]
            path.write_text(text, encoding="utf-8")
            (folder / f"{task}.toml").write_text(RECIPE.format(task=task, path=path), encoding="utf-8")
            assert run(["train", "--recipe", str(folder / f"{task}.toml"), "--output", str(folder / task)]) == 0
    finally:
        sys.stderr = stderr
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_one_line_in_one_line_out(
    readers: Path, typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed(b"the film was fine\n\nthe film was dull\tthe film\n")
    assert run(["predict", str(readers / "classify")]) == 0
    first, blank, third = lines(capsys)
    label, probability = first.split("\t")
    assert label in "+-" and 0.5 <= float(probability) <= 1 and blank == "" and third
    typed(b"Anna1 sees Rome2\n")
    assert run(["predict", str(readers / "tag")]) == 0
    assert len(lines(capsys)[0].split()) == 3
    typed(b"where ?\t7 is in Rome\n")
    assert run(["predict", str(readers / "answer")]) == 0
    text, start, end, _ = lines(capsys)[0].split("\t")
    assert "7 is in Rome"[int(start) : int(end)] == text
    typed(b"the <mask> was fine\n")
    assert run(["predict", str(readers / "mask"), "--format", "json"]) == 0
    (guesses,) = json.loads(lines(capsys)[0])
    assert len(guesses) == 5 and guesses[0].keys() == {"piece", "probability"}


def test_json_is_what_python_says(readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("the film was fine\n\n")
    assert run(["predict", str(readers / "classify"), str(tmp_path / "a.txt"), "--format", "json"]) == 0
    first, blank = lines(capsys)
    reader = transduce.load(readers / "classify")
    assert isinstance(reader, transduce.TextEncoder)
    (message,) = reader.predict(["the film was fine"])
    assert json.loads(first) == message._asdict()  # type: ignore[union-attr]
    assert blank == "null"


def test_vectors_are_the_same_as_npy_and_as_json(
    readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("".join(f"the film {n}\n" for n in range(9)) + "one\ttwo\n")
    arguments = ["embed", str(readers / "mask"), str(tmp_path / "a.txt"), "--normalize"]
    assert run(arguments) == 0
    rows = [json.loads(line)["vector"] for line in lines(capsys)]
    assert run([*arguments, "--output", str(tmp_path / "v.npy")]) == 0
    assert "10 vectors of 16" in capsys.readouterr().err
    found = np.load(tmp_path / "v.npy", allow_pickle=False)
    assert found.shape == (10, 16) and found.dtype == np.float32
    np.testing.assert_allclose(found, rows, atol=1e-6)
    assert run([*arguments, "--output", "v.txt"]) == 2
    assert ".npy" in capsys.readouterr().err
    assert run([*arguments, "--pool", "pooled"]) == 0


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("classify", {"label_accuracy", "macro_f1", "micro_f1"}),
        ("tag", {"word_accuracy", "span_f1"}),
        ("answer", {"exact_match", "answer_f1"}),
        ("mask", {"loss", "perplexity", "accuracy"}),
    ],
)
def test_a_text_encoder_is_evaluated_on_a_file_of_its_task(
    readers: Path, task: str, names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", str(readers / task), "--path", str(readers / FILES[task]), "--format", "json"]) == 0
    found = json.loads(lines(capsys)[0])
    assert names < found.keys()
    assert found["intervals"].keys() == (set() if task == "mask" else names)  # a loss has none, as of translations
    assert all(middle["low"] <= middle["score"] <= middle["high"] for middle in found["intervals"].values())
    command = ["evaluate", str(readers / task), "--path", str(readers / FILES[task]), "--samples", "40"]
    assert run(command) == 0
    shown = {line.split()[0]: line for line in lines(capsys)}
    assert shown.keys() >= names
    assert all(("95 %" in shown[name]) == (task != "mask") for name in names)


def test_labels_that_a_model_has_never_seen_are_counted_and_named(
    readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a wrong column is nothing but a low score."""
    (tmp_path / "a.tsv").write_text("the film\tgood\nthe play\t-\nfine\tgood\ndull\tbad\n")
    (tmp_path / "a.conll").write_text("Anna1 B-PER\nsees VERB\nRome2 B-LOC\n")
    note = "have labels unknown to the model"
    for task, count, labels in (("classify", "3 texts", "'good', 'bad'"), ("tag", "1 words", "'VERB'")):
        command = ["evaluate", str(readers / task), "--samples", "9", "--path"]
        assert run([*command, str(tmp_path / FILES[task])]) == 0
        first = lines(capsys)[0]
        assert f"{count} {note}" in first and labels in first
        assert run([*command, str(readers / FILES[task])]) == 0
        assert note not in capsys.readouterr().out
    assert run(["evaluate", str(readers / "classify"), "--path", str(tmp_path / "a.tsv"), "--format", "json"]) == 0
    assert json.loads(lines(capsys)[0])["unknown_labels"] == {"count": 3, "examples": ["good", "bad"]}


def test_examples_are_prepared_by_themselves(readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prepare", "--recipe", str(readers / "tag.toml"), "--output", str(tmp_path / "data")]) == 0
    shown = lines(capsys)
    assert shown[0].startswith("train        40 examples read, 36 kept, 0 dropped, 4 held out")
    assert "labels       3: B-LOC, B-PER, O" in shown
    recipe, run_folder = str(readers / "tag.toml"), str(tmp_path / "run")
    assert run(["train", "--recipe", recipe, "--prepared", str(tmp_path / "data"), "--output", run_folder]) == 0
    assert run(["report", run_folder, "--output", str(tmp_path / "report.html")]) == 0
    assert "word_accuracy" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_tagger_starts_from_the_encoder_of_a_pre_trained_text_encoder(
    readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same weights but for the head's, the same tokenizer, and not one update that changes the encoder."""
    recipe = tmp_path / "tag.toml"
    data = f'[data]\nobjective = "tag"\ntrain = {{path = "{readers / "a.conll"}"}}\nmax_length = 16\n'
    recipe.write_text(data, encoding="utf-8")
    still = ["--freeze", "encoder.*", "--freeze", "embedding.*"]
    settings = [word for change in ("updates=3", "validate_every=3") for word in ("--set", f"training.{change}")]
    arguments = ["--recipe", str(recipe), "--init-from", str(readers / "mask"), *still, *settings]
    assert run(["train", *arguments, "--output", str(tmp_path / "run")]) == 0
    before, after = load_model(readers / "mask"), load_model(tmp_path / "run")
    assert after.source_tokenizer.to_json() == before.source_tokenizer.to_json()
    assert after.notes["labels"] == ["B-LOC", "B-PER", "O"]
    old, new = dict(before.model.named_parameters()), dict(after.model.named_parameters())
    shared = {name for name in new if not name.startswith("head.")}
    assert shared < old.keys() and {"head.output.weight", "head.output.bias"} == new.keys() - shared
    assert all(torch.equal(old[name], new[name]) for name in shared)


def test_earlier_examples_of_a_text_encoder_are_not_validated_with_a_note(
    readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by the option nor by the recipe, whether it begins with a folder or from chance."""
    recipe, old = readers / "tag.toml", str(readers / "tag")
    going_on, watching = tmp_path / "going-on.toml", tmp_path / "watching.toml"
    going_on.write_text(recipe.read_text().partition("[tokenizer]")[0])
    watching.write_text(recipe.read_text().replace("[data]", '[data]\nextra_validation = {path = "a.conll"}'))
    for arguments in (
        ["--init-from", old, "--recipe", str(going_on), "--extra-validation", old],
        ["--recipe", str(recipe), "--extra-validation", old],
        ["--recipe", str(watching)],
    ):
        assert run(["train", *arguments, "--output", str(tmp_path / "run")]) == 2
        error = capsys.readouterr().err
        assert "extra_validation" in error and error.count("\n") == 1
        assert not (tmp_path / "run").exists()


def test_a_translator_does_not_validate_on_examples_of_a_text_encoder(
    readers: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = str(readers / "tag")
    assert run(["train", "--source", "a.txt", "--target", "b.txt", "--extra-validation", old, "--output", "x"]) == 65
    assert "pairs" in capsys.readouterr().err.splitlines()[-1]
    assert not (place / "x" / "model").exists()


def test_a_file_of_which_nothing_can_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("a text without a label\n" * 7)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(task="classify", path=tmp_path / "a.tsv"))
    assert run(["train", "--recipe", str(tmp_path / "recipe.toml"), "--output", str(tmp_path / "run")]) == 65
    error = capsys.readouterr().err
    assert f"{tmp_path / 'a.tsv'}: " in error and "7 examples" in error and "classify" in error


def test_a_text_encoder_shows_its_attention(readers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    output = str(tmp_path / "look")
    assert run(["inspect", str(readers / "classify"), "the film", "--second", "was fine", "--output", output]) == 0
    assert lines(capsys)[0].startswith("the film | was fine  →  ")
    assert "the film | was fine" in (tmp_path / "look.html").read_text(encoding="utf-8")
    assert (tmp_path / "look.png").stat().st_size > 1000
    assert run(["inspect", str(readers / "classify"), "the film", "--kind", "cross", "--output", output]) == 2


def test_the_wrong_command_names_the_right_one(
    readers: Path, place: Path, typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    reader = str(readers / "tag")
    for arguments, message in (
        (["translate", reader], "`transduce predict"),
        (["score", reader, "--source", "a.txt", "--target", "b.txt"], "`transduce predict"),
        (["evaluate", reader, "--source", "a.txt", "--target", "b.txt"], "--source"),
        (["evaluate", reader, "--path", "none.conll"], "none.conll"),
        (["evaluate", reader, "--path", "none.conll", "--target-language", "de"], "--target-language"),
        (["evaluate", reader, "--path", "none.conll", "--lowercase"], "--lowercase"),
        (["evaluate", "run", "--path", "a.tsv", "--label-column", "1"], "--label-column"),
        (["shortlist", reader], "`transduce predict"),
        (["generate", reader, "a"], "`transduce predict"),
        (["predict", "run"], "`transduce translate"),
        (["embed", "run"], "`transduce translate"),
        (["inspect", reader, "a b", "--second", "c"], "--second has no effect"),
        (["inspect", reader, "a b", "--target-language", "de"], "--target-language has no effect"),
        (["inspect", reader, "a b", "--beam-size", "2"], "--beam-size has no effect"),
        (["inspect", reader, "a b", "--top", "2"], "--top has no effect"),
        (["inspect", "run", "a b", "--second", "c"], "--second has no effect"),
    ):
        typed(b"a\n")
        assert run(arguments) > 0
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1 and error.startswith("error: "), (arguments, error)


def test_lines_that_are_no_questions_are_rejected(
    readers: Path, typed: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed(b"no tab here\n")
    assert run(["predict", str(readers / "answer")]) == 65
    assert ":1: needs a question" in capsys.readouterr().err
    typed(b"a\tb\tc\n")
    assert run(["predict", str(readers / "classify")]) == 65
    assert ":1: has 3 columns" in capsys.readouterr().err
    typed(b"the film was <mask>\n\nthe film was\n")
    assert run(["predict", str(readers / "mask")]) == 65
    assert "error: stdin:3: " in capsys.readouterr().err


STORIES = """
[data]
objective = "classify"
train = {path = "stories", format = "babi"}

[tokenizer]
kind = "word"
min_frequency = 1

[model]
preset = "memn2n"
model_dim = 7
max_facts = 5

[training]
updates = 2
validate_every = 2
"""


def test_a_story_is_answered_and_the_attention_of_each_hop_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stories").write_text("\n".join(simple_stories(20, seed=1)))
    Path("recipe.toml").write_text(STORIES)
    assert run(["train", "--recipe", "recipe.toml", "--output", "run"]) == 0
    capsys.readouterr()
    assert run(["inspect", "run", "Anna went to the attic. Boris went to the cellar. Where is Anna?"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Anna went to the attic. Boris went to the cellar. Where is Anna  →  ")
    weights = [[float(value) for value in line.split()[:3]] for line in lines[1:3]]
    assert [line.split("  ")[-1] for line in lines[1:3]] == ["Anna went to the attic", "Boris went to the cellar"]
    assert all(0 < sum(hop) < 1 for hop in zip(*weights, strict=True))  # the rest was looked for where no fact is
    assert lines[3:] == ["page     attention.html", "picture  attention.png"]
    assert run(["evaluate", "run", "--path", "stories"]) == 0
    capsys.readouterr()
    Path("asked").write_text("Anna went to the attic.\tBoris slept.\tWhere is Anna?\n")
    assert run(["predict", "run", "asked"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert run(["inspect", "run", "Where is Anna?"]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_universal_encoder_answers_stories_and_labels_texts_and_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stories").write_text("\n".join(simple_stories(20, seed=1)))
    Path("pairs.tsv").write_text("".join(f"word{n % 7}\tword{n % 5}\t{'+-'[n % 2]}\n" for n in range(60)))
    small = STORIES.replace('preset = "memn2n"', 'preset = "universal_encoder"\nnum_heads = 1\nffn_dim = 11')
    small = small.replace("model_dim = 7\nmax_facts = 5", "model_dim = 6")
    small = small.replace("[data]", "[data]\nmax_length = 2000")
    Path("stories.toml").write_text(small)
    Path("pairs.toml").write_text(
        small.replace('path = "stories", format = "babi"', 'path = "pairs.tsv", second_text = 2')
    )
    Path("asked").write_text("Anna went to the attic.\tBoris slept.\tWhere is Anna?\n")
    for name in ("stories", "pairs"):
        assert run(["train", "--recipe", f"{name}.toml", "--output", f"run-{name}"]) == 0
    capsys.readouterr()
    assert run(["predict", "run-stories", "asked"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert run(["inspect", "run-stories", "Anna went to the attic. Boris slept. Where is Anna?"]) == 0
    assert "attic" in capsys.readouterr().out
    assert run(["predict", "run-pairs", "asked"]) == 65
    assert ":1: has 3 columns" in capsys.readouterr().err
    Path("asked").write_text("word1. word2.\tword3\nword4\n")
    assert run(["predict", "run-pairs", "asked"]) == 0
    assert {line.split("\t")[0] for line in capsys.readouterr().out.splitlines()} <= {"+", "-"}
