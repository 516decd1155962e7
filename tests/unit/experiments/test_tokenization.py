"""Characters, bytes and subwords: comparable quality, and the verdict."""

from __future__ import annotations

import math

import pytest
import torch

from transduce.experiments import tokenization
from transduce.experiments.tokenization import (
    TextModel,
    TokenizationSetting,
    TokenizerResult,
    checks,
    measure,
    paragraphs,
    split,
)
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

SMALL = TokenizationSetting(
    subwords=(300, 400), width=8, num_layers=1, num_heads=2, longest=90, batch=2, updates=2, tested=4, repeats=1
)


def test_paragraphs_are_different_and_split_without_overlap() -> None:
    texts = paragraphs(80, 200)
    assert len(texts) == len(set(texts)) > 500
    assert all(80 <= len(text) <= 200 and "\n" not in text for text in texts)
    train, held_out = split(texts, 100)
    assert len(held_out) == 100 and not set(train) & set(held_out)


def test_bits_per_character_count_every_token_and_the_end() -> None:
    tokenizer = train_tokenizer("byte", ["any"], TokenizerConfig())
    one = TextModel(tokenizer, SMALL, seed=1)
    torch.nn.init.zeros_(one.model.output.weight)  # every token is as likely as any other
    bits = math.log2(tokenizer.size)
    assert one.bits(["abc", "d"]) == pytest.approx(bits, rel=1e-5)
    assert one.bits(["é"]) == pytest.approx(1.5 * bits, rel=1e-5)  # two bytes and the end, one character and the end


def test_every_kind_is_measured_on_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = paragraphs(80, 90)[:60]
    monkeypatch.setattr(tokenization, "paragraphs", lambda *_: texts)
    finding = measure(setting=SMALL)
    assert [row[0] for row in finding.rows] == ["characters", "bytes", "BPE 300", "BPE 400"]
    lossless, shorter, *_ = finding.checks
    assert lossless.passed and shorter.passed


def test_the_verdict_follows_the_figures() -> None:
    def result(tokens: float, example: int, bits: float, seconds: float) -> TokenizerResult:
        return TokenizerResult(300, 1000, tokens, example, bits, seconds, seconds, lossless=True)

    found = {
        "characters": result(1000, 12, 2.0, 1.0),
        "bytes": result(1000, 12, 2.1, 1.0),
        "BPE 300": result(700, 12, 1.8, 0.9),
        "BPE 400": result(500, 13, 1.9, 1.1),
    }
    assert [check.passed for check in checks(found)] == [True, True, False, True, False, True, False]
