"""Translations on a GPU: those of the CPU, by PyTorch and by CTranslate2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.example import recipe
from transduce import load
from transduce.inference.translator import Translator
from transduce.models.interface import move
from transduce.run import train

LINES = ["a b c d", "d c", "b b a", "a"] * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe(training={"device": "cpu", "updates": 60}), tmp_path_factory.mktemp("run") / "run")


def texts(translator: Translator) -> list[str]:
    return [str(found) for found in translator.translate(LINES)]


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_a_model_on_the_gpu_translates_as_on_the_cpu(folder: Path, engine: str) -> None:
    if engine == "ctranslate2":
        ctranslate2 = pytest.importorskip("ctranslate2")
        if not ctranslate2.get_cuda_device_count():
            pytest.skip("this build of CTranslate2 finds no GPU")
    on_cpu = load(folder)
    expected = texts(on_cpu)
    found = load(folder)
    assert isinstance(found, Translator)
    move(found.model, "cuda")
    found.use(engine)  # type: ignore[arg-type]
    same = sum(map(str.__eq__, texts(found), expected))
    assert same >= 0.9 * len(LINES)  # rounding may turn a close choice
