"""Characters, bytes and subwords on one text: length, vocabulary, quality and speed.

One small language model is trained for each tokenizer, on the same paragraphs in the same order. Perplexities per
token cannot be compared between vocabularies; bits per character of held-out text can, since all of them predict the
same text. The text is Python's own documentation, which is installed with it (`pydoc_data.topics`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import MissingInput
from transduce.experiments.finding import (
    Chart,
    ClaimCheck,
    Finding,
    Report,
    Series,
    fit,
    shortest_times,
    silent,
)
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel, State, VocabularySizes
from transduce.text.tokenizer.tokenizer import Tokenizer, TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

EXAMPLE = "我爱中国"
"""A text in another script than the training text."""


@dataclass(frozen=True)
class TokenizationSetting:
    """Sizes of the text, the vocabularies and the models."""

    subwords: tuple[int, ...] = (500, 1000, 2000, 4000)
    """Vocabulary sizes of BPE, in rising order."""
    width: int = 64
    num_layers: int = 2
    num_heads: int = 4
    shortest: int = 80
    longest: int = 200
    """Characters of a paragraph; longer ones are cut."""
    batch: int = 8
    """Paragraphs per update."""
    updates: int = 600
    tested: int = 150
    """Held-out paragraphs."""
    repeats: int = 3
    """Timed rounds."""


DEFAULT = TokenizationSetting()


def paragraphs(shortest: int, longest: int) -> list[str]:
    """Return the different paragraphs of Python's documentation, with single spaces, cut to `longest` characters."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise MissingInput(
            "this Python has no documentation topics (pydoc_data); install Python's full standard library"
        ) from None
    text = "\n\n".join(topics[name] for name in sorted(topics))
    found = (" ".join(part.split())[:longest].strip() for part in text.split("\n\n"))
    return list(dict.fromkeys(part for part in found if len(part) >= shortest))


def split(texts: Sequence[str], held_out: int) -> tuple[list[str], list[str]]:
    """Return training and held-out paragraphs: held out is one in so many, throughout the text."""
    every = max(2, len(texts) // held_out)
    return [text for at, text in enumerate(texts) if at % every], list(texts[::every])[:held_out]


class TextModel:
    """A tokenizer with its language model."""

    def __init__(self, tokenizer: Tokenizer, setting: TokenizationSetting, seed: int) -> None:
        self.tokenizer = tokenizer
        config = GptConfig(
            model_dim=setting.width,
            num_heads=setting.num_heads,
            num_layers=setting.num_layers,
            ffn_dim=4 * setting.width,
            positions="rotary",
            dropout=0.0,
        )
        sizes = VocabularySizes(tokenizer.size, tokenizer.size)
        self.model = cast("LanguageModel[State]", build(config, sizes, seed))

    def loss(self, texts: Sequence[str]) -> Tensor:
        """Return the negative log-likelihood of texts and their ends, in bits per character."""
        start, end, pad = self.tokenizer.start, self.tokenizer.end, self.tokenizer.pad
        rows = [[start, *tokens, end] for tokens in self.tokenizer.encode_batch(texts)]
        most = max(map(len, rows))
        token_BN = torch.tensor([row + [pad] * (most - len(row)) for row in rows])
        nothing = token_BN[:, :0]
        hidden_BND = self.model(token_BN[:, :-1], self.model.encode(nothing, nothing.bool()))
        output_BN = token_BN[:, 1:]
        real_BN = torch.arange(most - 1) < torch.tensor([[len(row) - 1] for row in rows])
        loss = F.cross_entropy(self.model.logits(hidden_BND[real_BN]), output_BN[real_BN], reduction="sum")
        return loss / math.log(2) / sum(len(text) + 1 for text in texts)

    def learn(self, texts: Sequence[str], setting: TokenizationSetting, seed: int, report: Report, name: str) -> None:
        """Train on random paragraphs."""

        def loss(generator: torch.Generator) -> Tensor:
            chosen = torch.randint(len(texts), (setting.batch,), generator=generator).tolist()
            return self.loss([texts[number] for number in chosen])

        fit(self.model, loss, setting.updates, seed, report, f"{name}: updates", max_grad_norm=1.0)

    def bits(self, texts: Sequence[str]) -> float:
        """Return the bits per character of held-out texts."""
        parts = [texts[at : at + 50] for at in range(0, len(texts), 50)]
        with torch.no_grad():
            sums = [self.loss(part).item() * sum(len(text) + 1 for text in part) for part in parts]
        return sum(sums) / sum(len(text) + 1 for text in texts)


class TokenizerResult(NamedTuple):
    """Figures of one tokenizer."""

    vocabulary: int
    parameters: int
    tokens: float
    """Tokens per 1,000 characters of held-out text."""
    example: int
    """Tokens of the text in another script."""
    bits: float
    """Bits per character."""
    training: float
    """Seconds per 1,000 characters, forward and backward."""
    decoding: float
    """Seconds per 1,000 characters, token by token."""
    lossless: bool


def measure(seed: int = 1, report: Report = silent, setting: TokenizationSetting = DEFAULT) -> Finding:
    """Train a tokenizer and a model of each kind, and measure all on the same held-out text."""
    found = results(setting, seed, report)
    return Finding(
        title="Characters, bytes and subwords",
        claim="subwords shorten texts, so that models of them are faster and, from the same text, better than those of "
        "characters or bytes.",
        setting={
            "width": setting.width,
            "layers": setting.num_layers,
            "updates": setting.updates,
            "paragraphs per update": setting.batch,
        },
        columns=(
            *("tokenizer", "vocabulary", "parameters", "tokens per 1,000 characters", f"tokens of {EXAMPLE}"),
            *("bits per character", "training, ms per 1,000 characters", "decoding, ms per 1,000 characters"),
        ),
        rows=tuple(
            (
                *(name, one.vocabulary, one.parameters, one.tokens, one.example, one.bits),
                *(1e3 * one.training, 1e3 * one.decoding),
            )
            for name, one in found.items()
        ),
        charts=_charts(found),
        checks=checks(found),
    )


def results(setting: TokenizationSetting, seed: int, report: Report) -> dict[str, TokenizerResult]:
    """Train and measure every kind."""
    train, held_out = split(paragraphs(setting.shortest, setting.longest), setting.tested)
    kinds = {"characters": ("character", 4000), "bytes": ("byte", 4000)}
    kinds |= {f"BPE {size:,}": ("bpe", size) for size in setting.subwords}
    models: dict[str, TextModel] = {}
    for name, (kind, size) in kinds.items():
        tokenizer = train_tokenizer(kind, train, TokenizerConfig(vocab_size=size))
        models[name] = TextModel(tokenizer, setting, seed)
        models[name].learn(train, setting, seed, report, name)
    timed = held_out[: setting.batch]
    thousands = sum(map(len, timed)) / 1000
    training = shortest_times({name: partial(_train_once, one, timed) for name, one in models.items()}, setting.repeats)
    step = shortest_times({name: _Steps(one.model) for name, one in models.items()}, setting.repeats)
    found = {}
    for name, one in models.items():
        encoded = one.tokenizer.encode_batch(held_out)
        tokens = 1000 * sum(map(len, encoded)) / sum(map(len, held_out))
        found[name] = TokenizerResult(
            vocabulary=one.tokenizer.size,
            parameters=sum(weight.numel() for weight in one.model.parameters()),
            tokens=tokens,
            example=len(one.tokenizer.encode(EXAMPLE)),
            bits=one.bits(held_out),
            training=training[name] / thousands,
            decoding=tokens * step[name] / _Steps.COUNT,
            lossless=all(one.tokenizer.decode(row) == text for row, text in zip(encoded, held_out, strict=True)),
        )
    return found


def _train_once(one: TextModel, texts: Sequence[str]) -> None:
    one.loss(texts).backward()  # type: ignore[no-untyped-call]
    one.model.zero_grad()


@dataclass(frozen=True)
class _Steps:
    """Write some tokens, one by one."""

    model: LanguageModel[State]
    COUNT = 20

    def __call__(self) -> None:
        token_1 = torch.tensor([0])
        with torch.no_grad():
            nothing = token_1[:, None][:, :0]
            state = self.model.start(self.model.encode(nothing, nothing.bool()))
            for _ in range(self.COUNT):
                hidden_1D, state = self.model.step(token_1, state)
                token_1 = self.model.logits(hidden_1D).argmax(dim=-1)


def checks(found: dict[str, TokenizerResult]) -> tuple[ClaimCheck, ...]:
    """Check the claim on the figures: characters, bytes, then BPE by size."""
    characters = found["characters"]
    subwords = {name: one for name, one in found.items() if name.startswith("BPE")}
    best = min(subwords, key=lambda name: subwords[name].bits)
    fastest = min(one.decoding for one in subwords.values())
    trained = max(one.training for one in subwords.values())
    largest = list(subwords)[-1]
    return (
        ClaimCheck("every tokenizer is lossless", all(one.lossless for one in found.values())),
        ClaimCheck(
            f"a larger vocabulary shortens the text: {characters.tokens:.0f} tokens per 1,000 characters, "
            f"{subwords[largest].tokens:.0f} with {largest}",
            all(more.tokens < fewer.tokens for fewer, more in pairwise([characters, *subwords.values()])),
        ),
        ClaimCheck(
            f"it shortens texts in other scripts, too: {EXAMPLE} has {characters.example} tokens of characters and "
            f"{subwords[largest].example} of {largest}",
            subwords[largest].example < characters.example,
        ),
        ClaimCheck(
            f"from the same text, subwords learn more: {characters.bits:.2f} bits per character with characters, "
            f"{found['bytes'].bits:.2f} with bytes, {subwords[best].bits:.2f} with {best}",
            subwords[best].bits < min(characters.bits, found["bytes"].bits),
        ),
        ClaimCheck(
            f"the larger the vocabulary, the better ({', '.join(f'{one.bits:.2f}' for one in subwords.values())})",
            all(more.bits < fewer.bits for fewer, more in pairwise(subwords.values())),
        ),
        ClaimCheck(
            f"writing is faster: {characters.decoding / fastest:.1f} times as fast as with characters",
            fastest < characters.decoding,
        ),
        ClaimCheck(
            f"so is training, with every vocabulary ({trained / characters.training:.2f} of the time at most)",
            trained < characters.training,
        ),
    )


def _charts(found: dict[str, TokenizerResult]) -> tuple[Chart, ...]:
    size = tuple(float(one.vocabulary) for one in found.values())

    def chart(title: str, unit: str, *lines: tuple[str, Callable[[TokenizerResult], float]]) -> Chart:
        in_order = sorted(zip(size, found.values(), strict=True))
        series = (
            Series(label, tuple(x for x, _ in in_order), tuple(value(one) for _, one in in_order))
            for label, value in lines
        )
        return Chart(title, "vocabulary", unit, tuple(series), log_x=True)

    return (
        chart("Quality", "bits per character", ("held-out text", lambda one: one.bits)),
        chart(
            "Time of 1,000 characters",
            "milliseconds",
            ("training", lambda one: 1e3 * one.training),
            ("decoding", lambda one: 1e3 * one.decoding),
        ),
    )
