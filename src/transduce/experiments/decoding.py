"""Reading a prompt and writing after it: prefill against decode, with and without a key-value cache.

*Prefill* reads a prompt at once; *decode* adds one token to a context of n, with the keys and values of the n tokens
kept, or by computing the whole text again. Time is CPU time of one text, the shortest of several rounds in which all
of them take turns. The attention of a layer is also timed alone, without its projections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from transduce.experiments.finding import (
    Chart,
    ClaimCheck,
    Finding,
    Report,
    Series,
    exponent,
    shortest_times,
    silent,
)
from transduce.inspection.cost import size, tensors
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import LanguageModel, State, VocabularySizes
from transduce.nn.attention.dot_product import attention_weights
from transduce.rng import torch_generator

FLOAT = 4
"""Bytes per value."""
SAME = 1e-3
"""Difference allowed between scores with the cache and computed again."""
CLOSE = 0.02
"""Relative difference allowed between measured and computed bytes."""
SQUARE = 1.8
"""Exponent from which on a time grows with the square of the length."""


@dataclass(frozen=True)
class DecodingSetting:
    """Sizes of the decoder, and contexts."""

    width: int = 256
    num_heads: int = 4
    num_layers: int = 4
    vocabulary: int = 1000
    contexts: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    """In rising order."""
    steps: int = 8
    """Tokens decoded in one timing; all rounds continue one text, which grows by as many each time."""
    repeats: int = 5
    """Timed rounds; the shortest counts."""

    @property
    def token(self) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.num_layers * self.width * FLOAT


DEFAULT = DecodingSetting()


class DecodingTimes(NamedTuple):
    """Seconds at one context."""

    prefill: float
    """Of the whole context."""
    cached: float
    """Of one more token, with the cache."""
    uncached: float
    """Of one more token, computing the whole text again."""
    attention: float
    """Of the attention of one layer, without projections."""
    state_bytes: int


def decoder(setting: DecodingSetting, seed: int) -> LanguageModel[State]:
    """Return a randomly initialised language model: times do not depend on what it knows."""
    config = GptConfig(
        model_dim=setting.width,
        num_heads=setting.num_heads,
        ffn_dim=4 * setting.width,
        num_layers=setting.num_layers,
        positions="rotary",
        dropout=0.0,
    )
    sizes = VocabularySizes(setting.vocabulary, setting.vocabulary)
    model = cast("LanguageModel[State]", build(config, sizes, seed)).eval()
    model.freeze()
    return model


def measure(seed: int = 1, report: Report = silent, setting: DecodingSetting = DEFAULT) -> Finding:
    """Time a decoder at every context, and compare the scores of both ways of decoding."""
    model = decoder(setting, seed)
    with torch.no_grad():
        found = times(model, setting, seed, report)
        difference = largest_difference(model, setting, seed)
    return Finding(
        title="Prefill, decode and the key-value cache",
        claim="a prompt is read at once and a text is written token by token; keeping keys and values makes each new "
        "token cheap, while the cost of reading grows with the square of the context.",
        setting={
            "layers": setting.num_layers,
            "width": setting.width,
            "heads": setting.num_heads,
            "timed rounds": setting.repeats,
        },
        columns=(
            *("context", "prefill, ms", "prefill, ms per token", "decode with cache, ms", "without, ms"),
            *("without / with", "attention of one layer, ms", "cache, KiB", "computed, KiB"),
        ),
        rows=tuple(
            (
                *(context, 1e3 * one.prefill, 1e3 * one.prefill / context, 1e3 * one.cached, 1e3 * one.uncached),
                *(one.uncached / one.cached, 1e3 * one.attention, one.state_bytes / 1024),
                setting.token * context / 1024,
            )
            for context, one in found.items()
        ),
        charts=_charts(found),
        checks=checks(setting, found, difference),
    )


def times(model: LanguageModel[State], setting: DecodingSetting, seed: int, report: Report) -> dict[int, DecodingTimes]:
    """Time prefill, both ways of decoding, and attention alone, all in turn."""
    works: dict[tuple[str, int], Callable[[], object]] = {}
    held: dict[int, int] = {}
    for context in setting.contexts:
        report("contexts", context)
        token_1N = texts(setting, 1, context, seed)
        held[context] = size(tensors(read(model, token_1N)))
        works |= {
            ("prefill", context): _Prefill(model, token_1N),
            ("cached", context): Decode(model, token_1N, setting.steps),
            ("uncached", context): _Forward(model, token_1N),
            ("attention", context): _Attention(setting, context, seed),
        }
    found = shortest_times(works, setting.repeats)
    return {
        context: DecodingTimes(
            prefill=found["prefill", context],
            cached=found["cached", context] / setting.steps,
            uncached=found["uncached", context],
            attention=found["attention", context],
            state_bytes=held[context],
        )
        for context in setting.contexts
    }


def texts(setting: DecodingSetting, rows: int, length: int, seed: int) -> Tensor:
    """Return random texts.  -> (B N)."""
    return torch.randint(setting.vocabulary, (rows, length), generator=torch_generator(seed))


def read(model: LanguageModel[State], tokens: Tensor) -> State:
    """Prefill: return the state after the texts.  (B N)."""
    nothing = tokens[:, :0]
    state = model.start(model.encode(nothing, nothing.bool()))
    return model.extend(tokens, torch.full((len(tokens),), tokens.shape[1]), state)[1]


@dataclass(frozen=True)
class _Prefill:
    model: LanguageModel[State]
    tokens: Tensor

    def __call__(self) -> State:
        return read(self.model, self.tokens)


class Decode:
    """Some steps after a text; the next call continues where this one ended."""

    def __init__(self, model: LanguageModel[State], tokens: Tensor, steps: int) -> None:
        self.model, self.steps = model, steps
        self.state, self.token_B = read(model, tokens), tokens[:, -1]

    def __call__(self) -> None:
        for _ in range(self.steps):
            hidden_BD, self.state = self.model.step(self.token_B, self.state)
            self.token_B = self.model.logits(hidden_BD).argmax(dim=-1)


@dataclass(frozen=True)
class _Forward:
    model: LanguageModel[State]
    tokens: Tensor

    def __call__(self) -> Tensor:
        nothing = self.tokens[:, :0]
        hidden_BND = self.model(self.tokens, self.model.encode(nothing, nothing.bool()))
        best_B: Tensor = self.model.logits(hidden_BND[:, -1]).argmax(dim=-1)
        return best_B


class _Attention:
    """softmax(QK^T / sqrt(K)) V of one layer with plain products."""

    def __init__(self, setting: DecodingSetting, length: int, seed: int) -> None:
        shape = (3, 1, setting.num_heads, length, setting.width // setting.num_heads)
        self.query, self.key, self.value = torch.randn(shape, generator=torch_generator(seed))

    def __call__(self) -> Tensor:
        mixed: Tensor = attention_weights(self.query, self.key) @ self.value
        return mixed


def largest_difference(model: LanguageModel[State], setting: DecodingSetting, seed: int) -> float:
    """Return how much the scores of the last token differ, step by step with the cache against all at once."""
    token_1N = texts(setting, 1, setting.contexts[0], seed)
    nothing = token_1N[:, :0]
    memory = model.encode(nothing, nothing.bool())
    whole_1V = model.logits(model(token_1N, memory)[:, -1])
    hidden_1D, _ = model.step(token_1N[:, -1], read(model, token_1N[:, :-1]))
    return (model.logits(hidden_1D) - whole_1V).abs().max().item()


def checks(setting: DecodingSetting, found: dict[int, DecodingTimes], difference: float) -> tuple[ClaimCheck, ...]:
    """Check the claim on the times."""
    first, last = setting.contexts[0], setting.contexts[-1]
    near, far = found[first], found[last]
    prompt = max(one.prefill / context / one.cached for context, one in found.items())
    off = max(abs(one.state_bytes / (setting.token * context) - 1) for context, one in found.items())
    long = setting.contexts[-3:]
    of_attention, of_text = (exponent(long, values) for values in _columns(found, long))
    return (
        ClaimCheck(f"with the cache, scores are the same (within {difference:.1g})", difference < SAME),
        ClaimCheck(
            f"decoding with it is faster at every context: {near.uncached / near.cached:.1f} times at {first:,} "
            f"tokens, {far.uncached / far.cached:.1f} times at {last:,}",
            all(one.uncached > one.cached for one in found.values()),
        ),
        ClaimCheck(
            f"from {first:,} to {last:,} tokens a new token takes {far.uncached / near.uncached:.0f} times as long "
            f"without the cache, {far.cached / near.cached:.1f} times with it",
            far.cached / near.cached < far.uncached / near.uncached / 2,
        ),
        ClaimCheck(
            f"with the cache a token's time does not depend on the context (× {far.cached / near.cached:.2f})",
            far.cached < 1.2 * near.cached,
        ),
        ClaimCheck(
            f"a token of a prompt takes less time than a token that is written (at most {prompt:.2f} of it)", prompt < 1
        ),
        ClaimCheck(f"the cache has the computed size (within {off:.1%})", off < CLOSE),
        ClaimCheck(
            f"the time of attention alone grows with the square of the context: exponent {of_attention:.2f} from "
            f"{long[0]:,} to {last:,}",
            of_attention > SQUARE,
        ),
        ClaimCheck(
            f"so does the time of reading the text, projections and feed-forward networks included: exponent "
            f"{of_text:.2f}",
            of_text > SQUARE,
        ),
    )


def _columns(found: dict[int, DecodingTimes], contexts: Sequence[int]) -> tuple[list[float], list[float]]:
    return [found[context].attention for context in contexts], [found[context].prefill for context in contexts]


def _charts(found: dict[int, DecodingTimes]) -> tuple[Chart, ...]:
    context = tuple(map(float, found))

    def line(label: str, value: Callable[[DecodingTimes], float]) -> Series:
        return Series(label, context, tuple(1e3 * value(one) for one in found.values()))

    written = (
        line("decode without cache", lambda one: one.uncached),
        line("decode with cache", lambda one: one.cached),
    )
    per_token = Series(
        "prefill, per token", context, tuple(1e3 * one.prefill / length for length, one in found.items())
    )
    read_at_once = (line("prefill", lambda one: one.prefill), line("attention of one layer", lambda one: one.attention))
    return (
        Chart("One token", "context", "milliseconds", (*written, per_token), log_x=True, log_y=True),
        Chart("The whole context", "context", "milliseconds", read_at_once, log_x=True, log_y=True),
    )
