"""Quantised weights: size, speed and quality of a small language model.

In int8, weights are rounded per output channel and activations per row, and products are computed in integers
(`Model.freeze("int8")`). With fewer bits only the weights are rounded, and products stay in float32: that measures
quality, not speed. The model is that of `tokenization`, wider: small matrices are not worth packing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from transduce.experiments.decoding import Decode, read
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, shortest_times, silent
from transduce.experiments.tokenization import TextModel, TokenizationSetting, paragraphs, split
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

LOSS = 0.01
"""Relative loss in bits per character up to which quality counts as the same."""


TEXT = TokenizationSetting(width=384, num_heads=6, updates=200)
"""Wide enough that every matrix is computed in int8."""


@dataclass(frozen=True)
class QuantizationSetting:
    """Sizes of the model, its text and the timings."""

    text: TokenizationSetting = TEXT
    vocabulary: int = 1000
    bits: tuple[int, ...] = (8, 6, 5, 4, 3, 2)
    """Bits of the weights, in falling order from 8."""
    prompt: int = 128
    """Tokens read at once in the timing."""
    steps: int = 8
    repeats: int = 5


DEFAULT = QuantizationSetting()


class PrecisionResult(NamedTuple):
    """Figures of one precision."""

    megabytes: float
    """Of the matrices."""
    bits: float
    """Bits per character of held-out text."""
    agreement: float
    """Share of tokens where the best prediction is that of float32."""
    prompt: float | None = None
    """Seconds to read a prompt; None where only the weights are rounded."""
    step: float | None = None
    """Seconds of one decoding step."""


def measure(seed: int = 1, report: Report = silent, setting: QuantizationSetting = DEFAULT) -> Finding:
    """Train a model in float32; measure it there, in int8, and with weights of fewer bits."""
    found = results(setting, seed, report)
    float32 = found["float32"]
    assert float32.prompt is not None and float32.step is not None
    return Finding(
        title="Quantised weights",
        claim="weights in int8 take a quarter of the memory, are faster, and cost no quality.",
        setting={
            "width": setting.text.width,
            "layers": setting.text.num_layers,
            "vocabulary": setting.vocabulary,
            "updates": setting.text.updates,
            "prompt": setting.prompt,
        },
        columns=(
            *("weights", "matrices, MB", "bits per character", "same prediction", "prompt, × float32"),
            "one token, × float32",
        ),
        rows=tuple(
            (
                *(name, one.megabytes, one.bits, one.agreement),
                *("" if one.prompt is None else one.prompt / float32.prompt,),
                *("" if one.step is None else one.step / float32.step,),
            )
            for name, one in found.items()
        ),
        charts=(_chart(setting, found),),
        checks=checks(setting, found),
    )


def results(setting: QuantizationSetting, seed: int, report: Report) -> dict[str, PrecisionResult]:
    """Train once, and measure every precision on the same held-out text."""
    text = setting.text
    train, held_out = split(paragraphs(text.shortest, text.longest), text.tested)
    tokenizer = train_tokenizer("bpe", train, TokenizerConfig(vocab_size=setting.vocabulary))
    whole = TextModel(tokenizer, text, seed)
    whole.learn(train, text, seed, report, "float32")
    precise = predictions(whole, held_out)
    quantised = copy.deepcopy(whole)
    whole.model.freeze("float32")
    quantised.model.freeze("int8")
    times = _times(whole, quantised, setting)
    found = {
        "float32": PrecisionResult(
            megabytes(whole.model, 32), whole.bits(held_out), 1.0, times["float32", "prompt"], times["float32", "step"]
        ),
        "int8, activations too": PrecisionResult(
            megabytes(whole.model, 8),
            quantised.bits(held_out),
            _agreement(predictions(quantised, held_out), precise),
            times["int8", "prompt"],
            times["int8", "step"],
        ),
    }
    for bits in setting.bits:
        report("bits", bits)
        rounded = copy.deepcopy(whole)
        round_weights(rounded.model, bits)
        found[f"{bits} bits"] = PrecisionResult(
            megabytes(whole.model, bits), rounded.bits(held_out), _agreement(predictions(rounded, held_out), precise)
        )
    return found


def round_weights(model: nn.Module, bits: int) -> None:
    """Round every matrix to `bits` bits, symmetric around zero, with one scale for each output channel."""
    largest = 2 ** (bits - 1) - 1
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                scale_N1 = (weight.abs().amax(dim=1, keepdim=True) / largest).clamp(min=1e-12)
                weight.copy_((weight / scale_N1).round() * scale_N1)


def megabytes(model: nn.Module, bits: int) -> float:
    """Return the size of the matrices with so many bits per weight, and a float32 scale per row below 32 bits."""
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    scales = 0 if bits == 32 else 4 * sum(len(weight) for weight in matrices)
    return (sum(weight.numel() for weight in matrices) * bits / 8 + scales) / 1e6


def predictions(one: TextModel, texts: Sequence[str]) -> Tensor:
    """Return the best next token after every token of the texts.  -> (N)."""
    found = []
    with torch.no_grad():
        for tokens in one.tokenizer.encode_batch(texts):
            token_1N = torch.tensor([[one.tokenizer.start, *tokens]])
            nothing = token_1N[:, :0]
            hidden_1ND = one.model(token_1N, one.model.encode(nothing, nothing.bool()))
            found.append(one.model.logits(hidden_1ND[0]).argmax(dim=-1))
    return torch.cat(found)


def _agreement(found: Tensor, precise: Tensor) -> float:
    return float((found == precise).double().mean())


def _times(whole: TextModel, quantised: TextModel, setting: QuantizationSetting) -> dict[tuple[str, str], float]:
    """Time a prompt and steps after it, in both precisions."""
    token_1N = (torch.arange(setting.prompt) * 7 % setting.vocabulary)[None]
    works: dict[tuple[str, str], Callable[[], object]] = {}
    with torch.no_grad():
        for name, one in (("float32", whole), ("int8", quantised)):
            model = one.model
            works[name, "prompt"] = lambda model=model: read(model, token_1N)  # type: ignore[misc]
            works[name, "step"] = Decode(model, token_1N, setting.steps)
        times = shortest_times(works, setting.repeats)
    return {place: seconds / (setting.steps if place[1] == "step" else 1) for place, seconds in times.items()}


def checks(setting: QuantizationSetting, found: dict[str, PrecisionResult]) -> tuple[ClaimCheck, ...]:
    """Check the claim on the figures."""
    float32, int8 = found["float32"], found["int8, activations too"]
    assert float32.prompt and float32.step and int8.prompt and int8.step
    worse = {name: one.bits / float32.bits - 1 for name, one in found.items()}
    fewest = [bits for bits in setting.bits if worse[f"{bits} bits"] < LOSS]
    return (
        ClaimCheck(
            f"matrices in int8 take a quarter of the memory ({int8.megabytes / float32.megabytes:.3f}, scales "
            "included)",
            int8.megabytes < 0.26 * float32.megabytes,
        ),
        ClaimCheck(
            f"a prompt of {setting.prompt} tokens is read faster ({float32.prompt / int8.prompt:.2f} times as fast)",
            int8.prompt < float32.prompt,
        ),
        ClaimCheck(
            f"so is a single token written ({float32.step / int8.step:.2f} times as fast)", int8.step < float32.step
        ),
        ClaimCheck(
            f"quality is the same: {float32.bits:.3f} bits per character in float32, {int8.bits:.3f} in int8 "
            f"({worse['int8, activations too']:+.2%})",
            worse["int8, activations too"] < LOSS,
        ),
        ClaimCheck(f"every prediction is the same ({int8.agreement:.1%} are)", int8.agreement == 1),
        ClaimCheck(
            f"4 bits are enough, without training for it ({worse['4 bits']:+.1%}; with {min(fewest or [9])} bits or "
            f"more the loss is below {LOSS:.0%})",
            worse["4 bits"] < LOSS,
        ),
    )


def _chart(setting: QuantizationSetting, found: dict[str, PrecisionResult]) -> Chart:
    bits = tuple(map(float, setting.bits))
    level = found["float32"].bits
    return Chart(
        "What fewer bits cost",
        "bits per weight",
        "bits per character",
        (
            Series("weights rounded", bits, tuple(found[f"{count} bits"].bits for count in setting.bits)),
            Series("float32", bits, (level,) * len(bits)),
        ),
    )
