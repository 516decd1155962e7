"""Every program in docs/examples runs as it stands and says what it should; warnings are errors there too."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documents.markdown import ROOT, blocks
from tests.unit.small_language_model import save_writer
from transduce.model_folder import ModelFolder, save_model
from transduce.models.ancestors.captioner import captioner_small
from transduce.models.catalog import build
from transduce.models.gpt import gpt_mini
from transduce.models.interface import VocabularySizes
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

EXAMPLES, INSPECT = ROOT / "docs" / "examples", ROOT / "docs" / "how-to" / "inspect.md"
RUN_HERE = {
    "quickstart.py",
    "ten_things.py",
    "translate_file.py",
    "inspect_attention.py",
    "compare_two_models.py",
    "adding_a_model.py",
    "inspect_language_model.py",
    "caption_pictures.py",
    "famous_sentences.py",
}


def run_example(name: str, *arguments: str | Path) -> str:
    """Run a program on one thread, as a person would; return what it printed."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run of quickstart.py, which others look at, and what it printed."""
    folder = tmp_path_factory.mktemp("quickstart")
    return folder / "reverse", run_example("quickstart.py", folder)


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == RUN_HERE


def test_the_quickstart_learns_to_reverse(quickstart: tuple[Path, str]) -> None:
    first, *others = quickstart[1].splitlines()
    assert first == "a b c d  → d c b a"
    assert others[0].split()[1:] == ["b", "a", "d"]
    assert sum("attends most to" in line for line in others) == 5


def test_the_ten_things_work_with_public_names_alone(tmp_path: Path) -> None:
    program = ast.parse((EXAMPLES / "ten_things.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(program) if isinstance(node, ast.Import) for alias in node.names}
    modules = {node.module for node in ast.walk(program) if isinstance(node, ast.ImportFrom)}
    assert imported == {"numpy", "random", "sys", "tempfile", "transduce"}
    assert not {module for module in modules if str(module).startswith("transduce")}
    message = run_example("ten_things.py", tmp_path).splitlines()
    shown = [line for line in message if line.endswith("% right")]
    assert len(shown) < 4 + 3, "the callback has stopped the first run before its end"
    assert any(line.startswith("Translator(model=transformer") for line in message)
    assert "['c b a', 'e d']" in message and "layer 1 of the encoder: (1, 4, 32)" in message
    assert message[-1] == "c b a" and (tmp_path / "elsewhere/model.safetensors").is_file()


def test_a_file_is_translated_line_by_line(quickstart: tuple[Path, str], tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("a b\n\nc d e\n", encoding="utf-8")
    message = run_example("translate_file.py", quickstart[0], source, output)
    assert output.read_text(encoding="utf-8").splitlines() == ["b a", "", "e d c"]
    assert message.startswith("3 lines, 1 of them empty, 0 translated in parts\n0 source tokens were unknown")


def test_attention_is_looked_into(quickstart: tuple[Path, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot: pip install 'transduce[plot]' removes this skip")
    message = run_example("inspect_attention.py", quickstart[0], "a b c d", tmp_path)
    assert message.count("sharpness") == 6  # encoder, decoder, cross; two heads each
    assert message.count("chosen with") == 5
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "attention.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_page_on_inspection_runs(
    quickstart: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the model of the quickstart, which reverses letters, and a language model that has learned nothing."""
    translation, language = [block for block in blocks(INSPECT, "python") if "head_summary" in block]
    given = {"runs/en-de": str(quickstart[0]), "A dog runs.": "a b c d", "A cat runs.": "a c e d", "Katze": "d"}
    for written, here in given.items():
        translation = translation.replace(f'"{written}"', repr(here))
    language = language.replace('"runs/author"', repr(str(save_writer(tmp_path / "author"))))
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(compile(translation, str(INSPECT), "exec"), found)
    exec(compile(language, str(INSPECT), "exec"), {})
    assert capsys.readouterr().out.startswith("1 ") and (tmp_path / "tree.svg").exists()
    assert found["tree"].hypotheses[0].text == "d c b a" and found["other"].changed.text == "d c c a"
    assert found["lens"].ranks[-1].tolist() == [1] * 5
    assert found["why"].token == "c"
    for name in ("off", "lens", "why", "heads"):
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.long
def test_two_models_are_compared(tmp_path: Path) -> None:
    message = run_example("compare_two_models.py", tmp_path)
    assert message.count("perplexity") == 2
    assert message.count("p = ") == 2


@pytest.mark.long
def test_a_model_of_ones_own_learns_what_it_can(tmp_path: Path) -> None:
    sort, reverse = run_example("adding_a_model.py", tmp_path).splitlines()
    assert sort.endswith("→  a b c d")
    assert not reverse.endswith("→  b c a d")


def test_heads_of_a_language_model_are_looked_into(tmp_path: Path) -> None:
    """On a model that has learned nothing: what is printed has its form, and probabilities are probabilities."""
    text = "The animal didn't cross the street because it was too tired."
    tokenizer = train_tokenizer("word", [text, text], TokenizerConfig(kind="word"))
    config = gpt_mini().but(model_dim=16, num_heads=2, ffn_dim=16, num_layers=2)
    model = build(config, VocabularySizes(tokenizer.size, tokenizer.size), seed=1)
    save_model(tmp_path / "model", ModelFolder(model, config, tokenizer, tokenizer), "a card")
    message = run_example("inspect_language_model.py", tmp_path / "model").splitlines()
    assert sum(line.endswith("%") for line in message) == 4 * 5
    assert len([line for line in message if line.startswith("  layer")]) == 4  # two layers of two heads


def test_pictures_are_captioned_and_drawn(tmp_path: Path) -> None:
    """With a captioner that has learnt nothing: the right captions are printed beside what it says."""
    letters = train_tokenizer("character", ["wrgbyopck"], TokenizerConfig(kind="character", min_frequency=1))
    words = train_tokenizer("word", ["a red circle"], TokenizerConfig(kind="word", min_frequency=1))
    config = captioner_small().but(channels=(3, 5), region_dim=7, hidden_dim=11, embedding_dim=13)
    model = build(config, VocabularySizes(letters.size, words.size), seed=1)
    notes = {"search": {"method": "greedy", "max_length": 5}}
    save_model(tmp_path / "model", ModelFolder(model, config, letters, words, notes), "a card")
    message = run_example("caption_pictures.py", tmp_path / "model", tmp_path).splitlines()
    assert len(message) == 3 and all(line.split(": ")[0].split()[0] in ("a", "an") for line in message)
    assert len((tmp_path / "picture-3.txt").read_text().strip()) == 32 * 32
    assert (tmp_path / "picture-3.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_the_sentences_of_common_texts_are_translated_step_by_step(tmp_path: Path) -> None:
    printed = run_example("famous_sentences.py", tmp_path)
    assert "我爱中国 → I Love China\n" in printed and "je suis étudiant → I am a student\n" in printed
    assert "<s> I Love China → </s>" in printed and "<s> I am a student → </s>" in printed
    assert "Thinking Machines: weights of head 1" in printed  # the program compares them with its own arithmetic
