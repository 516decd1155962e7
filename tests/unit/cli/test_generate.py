"""`transduce generate`, `transduce score --text` and `transduce train --text`, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.example import check_rejected, complaint
from tests.unit.small_language_model import TEXT, save_writer
from transduce.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model's folder."""
    return str(save_writer(tmp_path_factory.mktemp("models") / "writer", notes={"document": "blank"}))


def test_a_prompt_is_printed_with_what_follows_it(writer: str, capsys: Capture) -> None:
    assert run(["generate", writer, "the cat", "--seed", "1", "--max-length", "9"]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith("the cat") and len(whole) > len("the cat\n")
    assert run(["generate", writer, "the cat", "--seed", "1", "--max-length", "9", "--new-only"]) == 0
    assert "the cat" + capsys.readouterr().out == whole
    assert run(["generate", writer, "the cat", "--seed", "1", "--max-length", "9", "--stream"]) == 0
    assert capsys.readouterr().out == whole


def texts(capsys: Capture) -> list[tuple[str, str]]:
    """Prompts and what follows them."""
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(row["prompt"], row["continuations"][0]["text"]) for row in rows]


def test_prompts_come_from_a_file_or_from_standard_input(
    writer: str, tmp_path: Path, capsys: Capture, typed: Callable[[bytes], None]
) -> None:
    (tmp_path / "prompts").write_text("the cat\na bird\n\n")
    options = ["--seed", "1", "--max-length", "5", "--format", "json"]
    assert run(["generate", writer, "--input", str(tmp_path / "prompts"), *options]) == 0
    found = texts(capsys)
    assert [prompt for prompt, _ in found] == ["the cat", "a bird", ""]
    typed(b"the cat\na bird\n")
    assert run(["generate", writer, *options]) == 0
    assert texts(capsys) == found[:2]
    typed(b"the cat\na bird")
    assert run(["generate", writer, "--whole", *options]) == 0
    assert [prompt for prompt, _ in texts(capsys)] == ["the cat\na bird"]
    typed(b"")
    assert run(["generate", writer, *options]) == 0
    assert texts(capsys) == found[2:]


def test_several_translations_have_scores_in_json(writer: str, capsys: Capture) -> None:
    assert (
        run(["generate", writer, "the", "--beam-size", "4", "--n-best", "3", "--max-length", "4", "--format", "json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)["continuations"]
    assert len(found) == 3
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert all(one["log_probability"] < 0 and one["tokens"] <= 4 for one in found)
    assert run(["generate", writer, "the", "--n-best", "2", "--seed", "1", "--max-length", "4"]) == 0
    assert capsys.readouterr().out.count("the") >= 2


def test_a_prompt_longer_than_the_window_is_noted(writer: str, capsys: Capture) -> None:
    assert run(["generate", writer, "the cat " * 9, "--greedy", "--max-length", "3"]) == 0
    assert "longer than the context window, shortened to their end: 1 " in capsys.readouterr().err


def test_impossible_options_are_rejected(writer: str, capsys: Capture) -> None:
    cases = [
        (["x", "--input", "prompts"], "PROMPT"),
        (["x", "--stream", "--format", "json"], "--stream and --format json"),
        (["x", "--greedy", "--sample"], "--greedy and --sample"),
        (["x", "--top-p", "2"], "top_p"),
        (["x", "--greedy", "--temperature", "0.5"], "temperature"),
        (["x", "--min-length", "9", "--max-length", "3"], "min_length"),
        (["--input", "none.txt"], "none.txt"),
        (["x", "--device", "cuda"], "--device cuda"),
    ]
    check_rejected(capsys, cases, "generate", writer, codes=(2, 66))


def test_the_wrong_command_names_the_right_one(writer: str, place: Path, capsys: Capture) -> None:
    assert run(["generate", "run", "x"]) == 2
    assert "`transduce translate run`" in complaint(capsys.readouterr())
    for verb in (["translate", writer, "a.txt"], ["score", writer, "--source", "a.txt", "--target", "b.txt"]):
        assert run(verb) == 2
        assert "`transduce generate " in complaint(capsys.readouterr())
    assert run(["score", "run", "--text", "a.txt"]) == 2
    assert "`transduce translate run`" in complaint(capsys.readouterr())


def test_a_text_is_scored_with_a_window_that_slides(writer: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text").write_text("\n\n".join(TEXT), encoding="utf-8")
    found = []
    for stride in ("1", "24"):
        assert run(["score", writer, "--text", str(tmp_path / "text"), "--stride", stride, "--format", "json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["tokens"] == sum(map(len, TEXT)) + 2 and found[0]["words"] == sum(
        len(text.split()) for text in TEXT
    )
    assert found[0]["bytes"] == sum(len(text.encode()) for text in TEXT)
    assert found[0]["log_probability"] != found[1]["log_probability"]
    assert run(["score", writer, "--text", str(tmp_path / "text")]) == 0
    assert "bits per byte" in capsys.readouterr().out
    for options, sentence in (
        (["--text", str(tmp_path / "text"), "--stride", "25"], "choose 1 to 24"),
        (["--text", str(tmp_path / "text"), "--source", "x"], "--text and --source"),
        (["--stride", "3", "--source", "x", "--target", "y"], "--stride needs --text"),
    ):
        assert run(["score", writer, *options]) == 2
        assert sentence in complaint(capsys.readouterr())


def test_train_on_text_and_go_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("once upon a time there was a cat.\n" * 40)
    small = ["model_dim=16", "num_heads=2", "ffn_dim=19", "num_layers=1", "max_positions=16"]
    settings = [*(f"model.{setting}" for setting in small), "training.updates=4", "training.validate_every=4"]
    options = [word for setting in settings for word in ("--set", setting)]
    corpus = ["--text", "corpus.txt", "--document", "file", "--preset", "gpt_mini"]
    assert run(["train", *corpus, *options, "--output", "run"]) == 0
    message = capsys.readouterr().err
    assert "chosen: 1,360 characters of text" in message and "bits per byte" in message and "blocks" in message
    assert run(["generate", "run", "once", "--seed", "1", "--max-length", "30"]) == 0
    assert capsys.readouterr().out.startswith("once")
    assert run(["report", "run"]) == 0
    assert "bits_per_byte" in Path("report.html").read_text()
    assert (
        run(["prepare", "--text", "corpus.txt", "--document", "file", "--tokenizer", "character", "--output", "p"]) == 0
    )
    assert "1 document read, 1 kept" in capsys.readouterr().out
    assert run(["train", "--prepared", "p", *options, "--preset", "gpt_mini", "--output", "again"]) == 0
    spans = ["--text", "corpus.txt", "--document", "file", "--set", "data.objective=span_corruption"]
    assert run(["prepare", *spans, "--tokenizer", "character", "--output", "spans"]) == 0
    assert run(["train", "--prepared", "spans", *options, "--preset", "t5_mini", "--output", "filled"]) == 0
    assert run(["train", "--source", "corpus.txt", "--target", "corpus.txt", "--document", "line"]) == 2
    assert "--document needs plain text" in capsys.readouterr().err


def test_commands_for_other_tasks_reject_a_language_model(writer: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "text").write_text("the cat sat\n")
    assert run(["score", writer, "--text", str(tmp_path / "text"), "--target-language", "de"]) == 2
    assert "--text and --target-language" in complaint(capsys.readouterr())
    for verb in ("predict", "embed"):
        assert run([verb, writer, str(tmp_path / "text")]) == 2
        assert "`transduce generate " in complaint(capsys.readouterr())
