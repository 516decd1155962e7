"""What each head looks at: the token before, the first one, the same word, what came after it, or far away.

A head's share of a role is how much of its attention goes there, over the positions where there is such a place: a
word that stands for the first time has no same word before it. Roles are not exclusive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.errors import SettingsError
from transduce.experiments.finding import Cell, Chart, ClaimCheck, Finding, Given, Report, Series, fit, silent
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

# What the heads of a model looked at, as maps of self-attention: of a small model trained here, or of a given one.
#
# The small model goes on with texts that say everything twice: random symbols, then the same again. To know the
# second half it has to find the symbol where it stood before and see what came next. Two layers can do that (Elhage
# et al. 2021, Olsson et al. 2022: *induction heads*), and one cannot.

SELF: tuple[Kind, ...] = ("encoder", "decoder")
"""Maps of tokens that look at tokens of their own text."""


@dataclass(frozen=True)
class SelfAttentionMaps:
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


def looks_of_small(model: LanguageModel[State], sizes: Repeating, seed: int) -> tuple[list[SelfAttentionMaps], float]:
    """Return what it looked at in new texts, and the share of the second halves that it knew."""
    half = (sizes.shortest + sizes.longest + 1) // 2
    text_BN = draw(sizes, sizes.tested, half, torch_generator(seed + 1000))
    with torch.no_grad(), eval_mode(model), record(model) as heard:
        knew_BN = scores(model, text_BN)[:, half:].argmax(dim=-1) == text_BN[:, half + 1 :]
    weight_LBHNN = torch.stack(list(heard.values()))
    looks = [
        SelfAttentionMaps("decoder", weight_LBHNN[:, row], tuple(text[:-1]))
        for row, text in enumerate(text_BN.tolist())
    ]
    return looks, float(knew_BN.double().mean())


def looks_of_given(given: Given, texts: Sequence[str]) -> Iterator[list[SelfAttentionMaps]]:
    """Give what a translator or a language model looks at in each of some texts."""
    folder, model = given.folder, load(given.folder)
    if isinstance(model, Translator) and model.model.image_size is not None:
        raise SettingsError(f"{folder}: reads pictures and not texts; give a model that reads texts")
    if isinstance(model, Translator):
        model.languages.select(given.target_language, given.source_language)
        return (_of_translator(model, text) for text in texts)
    if given.target_language is not None or given.source_language is not None:
        raise SettingsError(f"{folder}: does not translate; leave out --source-language and --target-language")
    if isinstance(model, Generator):
        return ([_of_generator(model, text)] for text in texts)
    raise SettingsError(f"{folder}: holds a text encoder; give a translation or language model")


def _of_translator(translator: Translator, text: str) -> list[SelfAttentionMaps]:
    maps = translator.attention(text)
    found = [kind for kind in SELF if kind in maps.maps]
    if not found:
        raise SettingsError("this model has no self-attention; give one that has it, such as a transformer")
    return [SelfAttentionMaps(kind, torch.tensor(maps.maps[kind]), maps.columns(kind)) for kind in found]


def _of_generator(generator: Generator, text: str) -> SelfAttentionMaps:
    tokens = generator.tokenizer.encode(text)
    if len(tokens) < 2:
        raise SettingsError(f"a text of {len(tokens)} tokens has no attention map; give longer lines")
    opening = [] if generator.opens_with is None else [generator.opens_with]
    tokens = [*opening, *tokens][: generator.model.max_target]
    token_1N = torch.tensor([[*tokens, 0]])
    with torch.no_grad(), eval_mode(generator.model), record(generator.model) as heard:
        scores(generator.model, token_1N)
    return SelfAttentionMaps("decoder", torch.stack([weight_1HNN[0] for weight_1HNN in heard.values()]), tuple(tokens))


ROLES = ("itself", "previous", "first", "same word", "after same word")
"""What may be a head's own."""
FAR = 8
"""Tokens away from which on is far."""
MOSTLY = 0.5
"""Share from which on a head has a role."""
KNOWN = 0.9
"""Share of right answers from which on a small model has learned what it should."""
SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "The capital of France, which I visited after three weeks in Europe, is Paris.",
    "A dog that barked at a cat chased the cat, and the cat ran from the dog.",
)
"""What a given model reads where it is given no texts."""


DEFAULT = Repeating()


class HeadRole(NamedTuple):
    """One head and how much of its attention goes where."""

    stack: str
    layer: int
    number: int
    shares: Mapping[str, float]
    distance: float
    """Mean distance of what is looked at."""

    @property
    def role(self) -> str:
        """The largest of its shares, if it is most of its attention."""
        best = max(ROLES, key=lambda role: self.shares[role])
        return best if self.shares[best] >= MOSTLY else "mixed"


def measure(seed: int = 1, report: Report = silent, setting: Repeating = DEFAULT) -> Finding:
    """Train a small model and look at its heads."""
    looks, knew = looks_of_small(trained(setting, seed, report), setting, seed)
    learned = ClaimCheck(f"the model has learned to repeat ({knew:.1%} of what it should say again)", knew >= KNOWN)
    told = {"width": setting.width, "symbols": setting.symbols, "updates": setting.updates, "texts": setting.tested}
    return finding(looks, told, [learned])


def measure_model(given: Given, report: Report = silent) -> Finding:
    """Look at the heads of a given model while it reads its texts, or some English sentences."""
    texts = SENTENCES if given.texts is None else given.texts
    languages = {
        name: value
        for name, value in (("from", given.source_language), ("to", given.target_language))
        if value is not None
    }

    def looks() -> Iterator[SelfAttentionMaps]:  # one text's at a time: maps are large
        for number, seen in enumerate(looks_of_given(given, texts), start=1):
            yield from seen
            report("texts", number)

    return finding(looks(), {"model": str(given.folder), "texts": len(texts), **languages}, [])


def finding(looks: Iterable[SelfAttentionMaps], setting: Mapping[str, Cell], further: Sequence[ClaimCheck]) -> Finding:
    """Say what each head looks at."""
    heads = heads_of(looks)
    columns = (*ROLES, "far")
    layers = sorted({(head.stack, head.layer) for head in heads})
    charts = tuple(
        Chart(
            f"Shares of attention, {stack}",
            "layer",
            "mean over heads",
            tuple(
                Series(
                    role,
                    tuple(float(layer) for name, layer in layers if name == stack),
                    tuple(
                        _mean([head.shares[role] for head in heads if (head.stack, head.layer) == place])
                        for place in layers
                        if place[0] == stack
                    ),
                )
                for role in columns
            ),
        )
        for stack in dict.fromkeys(stack for stack, _ in layers)
    )
    return Finding(
        title="What each head attends to",
        claim="each head learns a relation of its own, and early layers look near, later ones far.",
        setting=setting,
        columns=("stack", "layer", "head", *columns, "distance", "role"),
        rows=tuple(
            (head.stack, head.layer, head.number, *(head.shares[role] for role in columns), head.distance, head.role)
            for head in heads
        ),
        charts=charts,
        checks=(*further, *_checks(heads)),
    )


def heads_of(looks: Iterable[SelfAttentionMaps]) -> list[HeadRole]:
    """Take the mean over all texts of what each head looked at."""
    total: dict[tuple[str, str], Tensor] = defaultdict(lambda: torch.zeros(()))
    count: dict[tuple[str, str], int] = defaultdict(int)
    for look in looks:
        weight_LHNN = look.weights.double()
        for role, place_NN in places(look.tokens, causal=look.stack == "decoder").items():
            asked_N = place_NN.any(dim=1)
            share_LHN = (weight_LHNN * place_NN).sum(dim=-1)[..., asked_N]
            total[look.stack, role] = total[look.stack, role] + share_LHN.sum(dim=-1)
            count[look.stack, role] += int(asked_N.sum())
        away_NN = _back(look.tokens).abs()
        total[look.stack, "distance"] = total[look.stack, "distance"] + (weight_LHNN * away_NN).sum(dim=(-2, -1))
        count[look.stack, "distance"] += len(look.tokens)
    heads = []
    for stack in dict.fromkeys(stack for stack, _ in total):
        mean = {role: total[stack, role] / max(1, count[stack, role]) for role in (*ROLES, "far", "distance")}
        for layer, number in torch.cartesian_prod(*map(torch.arange, mean["far"].shape)).tolist():
            shares = {role: float(mean[role][layer, number]) for role in (*ROLES, "far")}
            heads.append(HeadRole(stack, layer + 1, number + 1, shares, float(mean["distance"][layer, number])))
    return heads


def places(tokens: Sequence[int | str], causal: bool) -> dict[str, Tensor]:
    """Return which places have which role for each position.  -> (N N) each.

    Before a decoder's position there is only the past; an encoder's same word may also stand behind.
    """
    back_NN = _back(tokens)
    seen_NN = back_NN >= 0 if causal else torch.ones_like(back_NN, dtype=torch.bool)
    number = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    word_N = torch.tensor([number[token] for token in tokens])
    same_NN = (word_N[:, None] == word_N) & (back_NN != 0) & seen_NN
    after_NN = torch.zeros_like(same_NN)
    after_NN[:, 1:] = same_NN[:, :-1]
    return {
        "itself": back_NN == 0,
        "previous": back_NN == 1,
        "first": (torch.arange(len(tokens)) == 0) & (back_NN > 1),
        "same word": same_NN,
        "after same word": after_NN & seen_NN & (back_NN != 0),
        "far": (back_NN.abs() >= FAR) & seen_NN,
    }


def _back(tokens: Sequence[int | str]) -> Tensor:
    """How many places before each position each other one stands; below zero behind it.  -> (N N)."""
    place_N = torch.arange(len(tokens))
    return place_N[:, None] - place_N


def _checks(heads: Sequence[HeadRole]) -> list[ClaimCheck]:
    best = {role: max(heads, key=lambda head: head.shares[role]) for role in ROLES[1:]}
    checks = [
        ClaimCheck(
            f"some head looks mostly at {_called(role)}: {head.stack} layer {head.layer}, head {head.number} with "
            f"{head.shares[role]:.2f}",
            head.shares[role] >= MOSTLY,
        )
        for role, head in best.items()
    ]
    mixed = sum(head.role == "mixed" for head in heads)
    layers: dict[tuple[str, int], list[HeadRole]] = defaultdict(list)
    for head in heads:
        layers[head.stack, head.layer].append(head)
    named = [[head.role for head in group if head.role != "mixed"] for group in layers.values()]
    alone = sum(len(set(roles)) == len(roles) for roles in named)
    checks += [
        ClaimCheck(f"every head has a role with a name ({len(heads) - mixed} of {len(heads)} have)", mixed == 0),
        ClaimCheck(
            f"no two heads of a layer have the same one (in {alone} of {len(layers)} layers)", alone == len(layers)
        ),
    ]
    for stack in dict.fromkeys(head.stack for head in heads):
        depths = [number for name, number in layers if name == stack]
        near, far = (_mean([head.distance for head in layers[stack, depth]]) for depth in (min(depths), max(depths)))
        checks.append(
            ClaimCheck(
                f"the {stack}'s last layer looks further than its first ({far:.1f} tokens, {near:.1f})", far > near
            )
        )
    return checks


def _called(role: str) -> str:
    return {
        "previous": "the token before",
        "first": "the first token",
        "same word": "the same word",
        "after same word": "what came after the same word",
    }[role]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
