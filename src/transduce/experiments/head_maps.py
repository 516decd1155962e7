"""What the heads of a model looked at, as maps of self-attention: of a small model trained here, or of a given one.

The small model goes on with texts that say everything twice: random symbols, then the same again. To know the second
half it has to find the symbol where it stood before and see what came next. Two layers can do that (Elhage et al.
2021, Olsson et al. 2022: *induction heads*), and one cannot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import SettingsError
from transduce.experiments.finding import Given, Report
from transduce.experiments.fitting import fit
from transduce.inference.generator import Generator
from transduce.inference.load import load
from transduce.inference.translator import Translator
from transduce.inspection.maps import Kind
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel, State, VocabularySizes
from transduce.nn.hook import record
from transduce.nn.twin import eval_mode
from transduce.rng import torch_generator

SELF: tuple[Kind, ...] = ("encoder", "decoder")
"""Maps of tokens that look at tokens of their own text."""


@dataclass(frozen=True)
class Look:
    """One text and the self-attention that read it."""

    stack: str
    """Of the encoder, or of the decoder."""
    weights: Tensor
    """(L H N N), each row of sum 1."""
    tokens: tuple[int | str, ...]
    """N names of what was read; equal names are the same word."""


@dataclass(frozen=True)
class Repeating:
    """Sizes of the small model and its texts."""

    width: int = 64
    num_heads: int = 4
    num_layers: int = 2
    symbols: int = 30
    shortest: int = 6
    longest: int = 14
    """Symbols of each half."""
    batch: int = 32
    updates: int = 2500
    tested: int = 50


def trained(sizes: Repeating, seed: int, report: Report) -> LanguageModel[State]:
    """Train the small model to say everything twice."""
    config = GptConfig(
        model_dim=sizes.width,
        num_heads=sizes.num_heads,
        num_layers=sizes.num_layers,
        ffn_dim=2 * sizes.width,
        positions="rotary",
        dropout=0.0,
    )
    vocabulary = sizes.symbols + 1
    model = cast("LanguageModel[State]", build(config, VocabularySizes(vocabulary, vocabulary), seed))

    def loss(generator: torch.Generator) -> Tensor:
        half = int(torch.randint(sizes.shortest, sizes.longest + 1, (1,), generator=generator))
        text_BN = draw(sizes, sizes.batch, half, generator)
        return F.cross_entropy(scores(model, text_BN)[:, half:].flatten(0, 1), text_BN[:, half + 1 :].flatten())

    fit(model, loss, sizes.updates, seed, report, "updates")
    return model


def draw(sizes: Repeating, size: int, half: int, generator: torch.Generator) -> Tensor:
    """Return texts: token 0, random symbols, and the same again.  -> (B 2·half + 1)."""
    symbol_BN = torch.randint(1, sizes.symbols + 1, (size, half), generator=generator)
    return F.pad(torch.cat([symbol_BN, symbol_BN], dim=1), (1, 0))


def scores(model: LanguageModel[State], text: Tensor) -> Tensor:
    """Score what follows every token but the last.  (B N + 1) -> (B N V)."""
    nothing = text[:, :0]
    return model.logits(model(text[:, :-1], model.encode(nothing, nothing.bool())))


def looks_of_small(model: LanguageModel[State], sizes: Repeating, seed: int) -> tuple[list[Look], float]:
    """Return what it looked at in new texts, and the share of the second halves that it knew."""
    half = (sizes.shortest + sizes.longest + 1) // 2
    text_BN = draw(sizes, sizes.tested, half, torch_generator(seed + 1000))
    with torch.no_grad(), eval_mode(model), record(model) as heard:
        knew_BN = scores(model, text_BN)[:, half:].argmax(dim=-1) == text_BN[:, half + 1 :]
    weight_LBHNN = torch.stack(list(heard.values()))
    looks = [Look("decoder", weight_LBHNN[:, row], tuple(text[:-1])) for row, text in enumerate(text_BN.tolist())]
    return looks, float(knew_BN.double().mean())


def looks_of_given(given: Given, texts: Sequence[str]) -> Iterator[list[Look]]:
    """Give what a translator or a language model looks at in each of some texts."""
    folder, model = given.folder, load(given.folder)
    if isinstance(model, Translator) and model.model.image_size is not None:
        raise SettingsError(f"{folder}: reads pictures and not texts; give a model that reads texts")
    if isinstance(model, Translator):
        model.languages.select(given.to, given.of)
        return (_of_translator(model, text) for text in texts)
    if given.to is not None or given.of is not None:
        raise SettingsError(f"{folder}: does not translate; leave out --source-language and --target-language")
    if isinstance(model, Generator):
        return ([_of_generator(model, text)] for text in texts)
    raise SettingsError(f"{folder}: holds a text encoder; give a translation or language model")


def _of_translator(translator: Translator, text: str) -> list[Look]:
    maps = translator.attention(text)
    found = [kind for kind in SELF if kind in maps.maps]
    if not found:
        raise SettingsError("this model has no self-attention; give one that has it, such as a transformer")
    return [Look(kind, torch.tensor(maps.maps[kind]), maps.columns(kind)) for kind in found]


def _of_generator(generator: Generator, text: str) -> Look:
    tokens = generator.tokenizer.encode(text)
    if len(tokens) < 2:
        raise SettingsError(f"a text of {len(tokens)} tokens has no attention map; give longer lines")
    opening = [] if generator.opens_with is None else [generator.opens_with]
    tokens = [*opening, *tokens][: generator.model.max_target]
    token_1N = torch.tensor([[*tokens, 0]])
    with torch.no_grad(), eval_mode(generator.model), record(generator.model) as heard:
        scores(generator.model, token_1N)
    return Look("decoder", torch.stack([weight_1HNN[0] for weight_1HNN in heard.values()]), tuple(tokens))
