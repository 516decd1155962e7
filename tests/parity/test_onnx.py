"""Exports to ONNX: ONNX Runtime gives what our models give, whatever the sizes, and the README's lines run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from tests.unit.cli.example import complaint
from transduce.cli.main import run
from transduce.config import Config
from transduce.interop import onnx_graphs
from transduce.model_folder import ModelFolder, load_model
from transduce.models import catalog
from transduce.models.bert import BertConfig
from transduce.models.interface import Memory, VocabularySizes
from transduce.models.t5 import T5Config
from transduce.models.transformer import TransformerConfig
from transduce.text.tokenizer import AnyTokenizer

STORED = Path(__file__).parents[1] / "unit" / "stored"
SMALL: dict[str, Any] = {"model_dim": 24, "num_heads": 2, "ffn_dim": 29, "num_layers": 2}
TRANSLATORS = {
    "post-norm": TransformerConfig(**SMALL, norm="post"),
    "learned positions": TransformerConfig(**SMALL, norm="pre", positions="learned", max_positions=800),
    "rotary, shared key heads": TransformerConfig(**SMALL, norm="pre", positions="rotary", key_value_heads=1),
    "T5": T5Config(**SMALL),
}


@pytest.fixture(scope="module")
def tokenizer() -> AnyTokenizer:
    return load_model(STORED / "translation").source_tokenizer


def exported(config: Config, tokenizer: AnyTokenizer, folder: Path) -> Any:
    sizes = VocabularySizes(tokenizer.size, tokenizer.size)
    model = catalog.build(config, sizes, seed=3).eval()
    onnx_graphs.export(ModelFolder(model, config, tokenizer, tokenizer), folder, Path("run"))
    return model


def session(path: Path) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'transduce[onnx]'")
    return onnxruntime.InferenceSession(str(path))


@pytest.mark.long
@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_agree_at_every_size(name: str, tokenizer: AnyTokenizer, tmp_path: Path) -> None:
    model = exported(TRANSLATORS[name], tokenizer, tmp_path / "x")
    encoder, decoder = session(tmp_path / "x/encoder.onnx"), session(tmp_path / "x/decoder.onnx")
    generator = torch.Generator().manual_seed(5)
    for batch, length, written in ((1, 1, 1), (1, 2, 700), (5, 700, 3), (3, 13, 11)):
        source = torch.randint(4, tokenizer.size, (batch, length), generator=generator)
        target = torch.randint(4, tokenizer.size, (batch, written), generator=generator)
        allowed = torch.ones_like(source, dtype=torch.bool)
        allowed[-1, 1 + length // 2 :] = False
        with torch.no_grad():
            memory = model.encode(source, allowed)
            logits = model.output(model(target, memory)).numpy()
        given = {"source": source.numpy(), "source_allowed": allowed.numpy()}
        (found,), real = encoder.run(None, given), allowed.numpy()
        np.testing.assert_allclose(found[real], memory.states.numpy()[real], atol=1e-4)
        inputs = {"target": target.numpy(), "memory": found, "source_allowed": allowed.numpy()}
        (scores,) = decoder.run(None, inputs)
        never = [tokenizer.pad, tokenizer.start]
        assert (scores[..., never] < -1e8).all()
        kept = np.setdiff1d(np.arange(tokenizer.size), never)
        np.testing.assert_allclose(scores[..., kept], logits[..., kept], atol=1e-4)
        assert isinstance(memory, Memory)


@pytest.mark.long
@pytest.mark.parametrize("head", ["none", "labels", "tags", "span", "language"])
def test_text_encoders_agree_with_every_head(head: Any, tokenizer: AnyTokenizer, tmp_path: Path) -> None:
    model = exported(BertConfig(**SMALL, head=head, num_labels=3, max_positions=64), tokenizer, tmp_path / "x")
    graph = session(tmp_path / "x/model.onnx")
    for batch, length in ((1, 1), (4, 64), (2, 9)):
        tokens = torch.randint(4, tokenizer.size, (batch, length), generator=torch.Generator().manual_seed(7))
        allowed = torch.ones_like(tokens, dtype=torch.bool)
        allowed[-1, 1 + length // 2 :] = False
        with torch.no_grad():
            encoding = model(tokens, allowed)
            expected = [encoding.states, *([] if model.head is None else [model.head(encoding)])]
        found = graph.run(None, {"tokens": tokens.numpy(), "allowed": allowed.numpy()})
        for mine, theirs in zip(expected, found, strict=True):
            np.testing.assert_allclose(theirs, mine.numpy(), atol=1e-4)


def printed(folder: Path, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """What the Python lines of a README print for a text."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    (folder.parent / "program.py").write_text(code.replace("some text", text))
    capsys.readouterr()
    runpy.run_path(str(folder.parent / "program.py"))
    return capsys.readouterr().out.strip()


@pytest.mark.long
@pytest.mark.parametrize("task", ["translation", "text_encoding"])
def test_the_lines_of_the_readme_give_what_we_give(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(STORED / task), "--to", "onnx", "--output", "x"]) == 0
    shown, text = capsys.readouterr().err, "a b c"
    assert "onnxruntime.InferenceSession" in shown
    assert run(["translate", "x"]) == 65 and "ONNX Runtime" in complaint(capsys.readouterr())
    model = transduce.load(STORED / task)
    found = printed(tmp_path / "x", capsys, text)
    if task == "translation":
        assert found == model.translate([text], method="greedy")[0] != ""
    else:
        scores = [float(number) for number in found.strip("[]").split()]
        (expected,) = model.engine.label([[text]])
        assert model.engine.labels[int(np.argmax(scores))] == expected.label
        assert np.exp(max(scores)) / np.exp(scores).sum() == pytest.approx(expected.probability, abs=1e-4)


def test_what_cannot_be_exported_and_a_missing_extra_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", str(STORED / "language_modeling"), "--to", "onnx", "--output", str(tmp_path / "x")]
    monkeypatch.setattr(onnx_graphs, "_runtime", lambda: None)
    assert run(arguments) == 2
    assert "cannot be exported to ONNX" in complaint(capsys.readouterr())
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert run(arguments) == 2
    assert "pip install 'transduce[onnx]'" in complaint(capsys.readouterr())
    assert not (tmp_path / "x").exists()
