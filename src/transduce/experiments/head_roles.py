"""Roles of attention heads: the previous token, the first one, the same word, the token after it, or far away.

Shares of attention are those of `inspection.head_role`.

The claim is measured on a small model trained here, or on a given one. The small model learns to repeat random symbols:
for the second half of a text it has to find the earlier occurrence of a symbol and see what followed. Two layers can do
that (Elhage et al. 2021, Olsson et al. 2022: *induction heads*), and one cannot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import SettingsError
from transduce.experiments.finding import Cell, Chart, ClaimCheck, Finding, Given, Report, Series, fit, silent
from transduce.inference.generator import Generator
from transduce.inference.load import load
from transduce.inference.translator import Translator
from transduce.inspection.head_role import MOSTLY, HeadRole, SampledMaps, classify_heads
from transduce.inspection.maps import Kind
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel, State, VocabularySizes
from transduce.nn.hook import eval_mode, record
from transduce.rng import torch_generator

SELF_ATTENTION: tuple[Kind, ...] = ("encoder", "decoder")
"""Kinds of self-attention maps."""


@dataclass(frozen=True)
class HeadRoleSetting:
    """Sizes of the small model and its texts."""

    width: int = 64
    num_heads: int = 4
    num_layers: int = 2
    symbols: int = 30
    shortest: int = 6
    longest: int = 14
    """Symbols in each half."""
    batch: int = 32
    updates: int = 2500
    tested: int = 50


def train_small(sizes: HeadRoleSetting, seed: int, report: Report) -> LanguageModel[State]:
    """Train the small model to repeat the first half of a text."""
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
        text_BN = sample_texts(sizes, sizes.batch, half, generator)
        return F.cross_entropy(scores(model, text_BN)[:, half:].flatten(0, 1), text_BN[:, half + 1 :].flatten())

    fit(model, loss, sizes.updates, seed, report, "updates")
    return model


def sample_texts(sizes: HeadRoleSetting, size: int, half: int, generator: torch.Generator) -> Tensor:
    """Return texts: token 0, random symbols, and the same symbols again.  -> (B 2·half + 1)."""
    symbol_BN = torch.randint(1, sizes.symbols + 1, (size, half), generator=generator)
    return F.pad(torch.cat([symbol_BN, symbol_BN], dim=1), (1, 0))


def scores(model: LanguageModel[State], text: Tensor) -> Tensor:
    """Score the next token after every token but the last.  (B N + 1) -> (B N V)."""
    nothing = text[:, :0]
    return model.logits(model(text[:, :-1], model.encode(nothing, nothing.bool())))


def maps_of_small(model: LanguageModel[State], sizes: HeadRoleSetting, seed: int) -> tuple[list[SampledMaps], float]:
    """Return the attention maps of new texts, and the accuracy on their second halves."""
    half = (sizes.shortest + sizes.longest + 1) // 2
    text_BN = sample_texts(sizes, sizes.tested, half, torch_generator(seed + 1000))
    with torch.no_grad(), eval_mode(model), record(model) as recorded:
        correct_BN = scores(model, text_BN)[:, half:].argmax(dim=-1) == text_BN[:, half + 1 :]
    weight_LBHNN = torch.stack(list(recorded.values()))
    maps = [SampledMaps("decoder", weight_LBHNN[:, row], tuple(text[:-1])) for row, text in enumerate(text_BN.tolist())]
    return maps, float(correct_BN.double().mean())


def maps_of_given(given: Given, texts: Sequence[str]) -> Iterator[list[SampledMaps]]:
    """Yield the self-attention maps of a translator or language model for each text."""
    folder, model = given.folder, load(given.folder)
    if isinstance(model, Translator) and model.model.image_size is not None:
        raise SettingsError(f"{folder}: takes pictures as input; give a model that takes text")
    if isinstance(model, Translator):
        model.languages.select(given.target_language, given.source_language)
        return (_of_translator(model, text) for text in texts)
    if given.target_language is not None or given.source_language is not None:
        raise SettingsError(f"{folder}: does not translate; leave out --source-language and --target-language")
    if isinstance(model, Generator):
        return ([_of_generator(model, text)] for text in texts)
    raise SettingsError(f"{folder}: holds a text encoder; give a translation or language model")


def _of_translator(translator: Translator, text: str) -> list[SampledMaps]:
    maps = translator.attention(text)
    found = [kind for kind in SELF_ATTENTION if kind in maps.maps]
    if not found:
        raise SettingsError("this model has no self-attention; give one that has it, such as a transformer")
    return [SampledMaps(kind, torch.tensor(maps.maps[kind]), maps.columns(kind)) for kind in found]


def _of_generator(generator: Generator, text: str) -> SampledMaps:
    if len(generator.tokenizer.encode(text)) < 2:
        raise SettingsError("a text of fewer than two tokens has no attention map; give longer lines")
    maps = generator.attention(text, top=1)
    return SampledMaps("decoder", torch.tensor(maps.maps["causal"]), maps.columns("causal"))


ROLES = ("itself", "previous", "first", "same word", "after same word")
"""Roles that the claim is about."""
LEARNED = 0.9
"""Accuracy from which on the small model has learned its task."""
SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "The capital of France, which I visited after three weeks in Europe, is Paris.",
    "A dog that barked at a cat chased the cat, and the cat ran from the dog.",
)
"""Default texts for a given model."""


DEFAULT = HeadRoleSetting()


def measure(seed: int = 1, report: Report = silent, setting: HeadRoleSetting = DEFAULT) -> Finding:
    """Train a small model and classify its heads."""
    maps, accuracy = maps_of_small(train_small(setting, seed, report), setting, seed)
    learned = ClaimCheck(f"the model has learned to repeat ({accuracy:.1%} of the tokens)", accuracy >= LEARNED)
    sizes = {"width": setting.width, "symbols": setting.symbols, "updates": setting.updates, "texts": setting.tested}
    return finding(maps, sizes, [learned])


def measure_model(given: Given, report: Report = silent) -> Finding:
    """Classify the heads of a given model on the given texts, or on some English sentences."""
    texts = SENTENCES if given.texts is None else given.texts
    languages = {
        name: value
        for name, value in (("from", given.source_language), ("to", given.target_language))
        if value is not None
    }

    def maps() -> Iterator[SampledMaps]:  # one text at a time: maps are large
        for number, found in enumerate(maps_of_given(given, texts), start=1):
            yield from found
            report("texts", number)

    return finding(maps(), {"model": str(given.folder), "texts": len(texts), **languages}, [])


def finding(maps: Iterable[SampledMaps], setting: Mapping[str, Cell], further: Sequence[ClaimCheck]) -> Finding:
    """Classify each head by its attention."""
    heads = classify_heads(maps)
    columns = (*ROLES, "far")
    layers = sorted({(head.kind, head.layer) for head in heads})
    charts = tuple(
        Chart(
            f"Shares of attention, {kind}",
            "layer",
            "mean over heads",
            tuple(
                Series(
                    role,
                    tuple(float(layer) for name, layer in layers if name == kind),
                    tuple(
                        _mean([head.shares[role] for head in heads if (head.kind, head.layer) == place])
                        for place in layers
                        if place[0] == kind
                    ),
                )
                for role in columns
            ),
        )
        for kind in dict.fromkeys(kind for kind, _ in layers)
    )
    return Finding(
        title="What each head attends to",
        claim="each head learns a relation of its own, and early layers attend to near tokens, later ones to far ones.",
        setting=setting,
        columns=("kind", "layer", "head", *columns, "distance", "role"),
        rows=tuple(
            (head.kind, head.layer, head.number, *(head.shares[role] for role in columns), head.distance, _role(head))
            for head in heads
        ),
        charts=charts,
        checks=(*further, *_checks(heads)),
    )


def _checks(heads: Sequence[HeadRole]) -> list[ClaimCheck]:
    best = {role: max(heads, key=lambda head: head.shares[role]) for role in ROLES[1:]}
    checks = [
        ClaimCheck(
            f"some head attends mostly to {_called(role)}: {head.kind} layer {head.layer}, head {head.number} with "
            f"{head.shares[role]:.2f}",
            head.shares[role] >= MOSTLY,
        )
        for role, head in best.items()
    ]
    mixed = sum(_role(head) == "mixed" for head in heads)
    layers: dict[tuple[str, int], list[HeadRole]] = defaultdict(list)
    for head in heads:
        layers[head.kind, head.layer].append(head)
    named = [[role for head in group if (role := _role(head)) != "mixed"] for group in layers.values()]
    alone = sum(len(set(roles)) == len(roles) for roles in named)
    checks += [
        ClaimCheck(f"every head has one of the named roles ({len(heads) - mixed} of {len(heads)} do)", mixed == 0),
        ClaimCheck(
            f"no two heads of a layer have the same role (in {alone} of {len(layers)} layers)", alone == len(layers)
        ),
    ]
    for kind in dict.fromkeys(head.kind for head in heads):
        depths = [number for name, number in layers if name == kind]
        near, far = (_mean([head.distance for head in layers[kind, depth]]) for depth in (min(depths), max(depths)))
        checks.append(
            ClaimCheck(
                f"the {kind}'s last layer attends further than its first ({far:.1f} tokens, {near:.1f})", far > near
            )
        )
    return checks


def _role(head: HeadRole) -> str:
    return head.role_among(ROLES)


def _called(role: str) -> str:
    return {
        "previous": "the previous token",
        "first": "the first token",
        "same word": "the same word",
        "after same word": "the token after the same word",
    }[role]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
