"""Size of the decoding state against context length: the key-value cache compared with a recurrent state.

Every number is computed from the sizes, and measured on the state of a real model after that many tokens. Values are
float32; a server would store 16 bits, half of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch

from transduce.config import Config
from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, silent
from transduce.inspection.cost import size, tensors
from transduce.models.catalog import build
from transduce.models.gpt import GptConfig
from transduce.models.interface import AnyTransducer, VocabularySizes
from transduce.models.rnn import RnnConfig
from transduce.rng import torch_generator

FLOAT = 4
"""Bytes per value."""
VOCABULARY = 16
"""Vocabulary size; the state does not depend on it."""
CLOSE = 0.02
"""Relative difference allowed between measured and computed bytes: the state also holds slot indices and lengths."""


@dataclass(frozen=True)
class DecoderMemorySetting:
    """Sizes of the decoders: those of the paper's base model."""

    width: int = 512
    num_heads: int = 8
    num_layers: int = 6
    shared: int = 2
    """Key-value heads of grouped-query attention."""
    window: int = 128
    contexts: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    """Context lengths in rising order, from at most the window to beyond it."""

    @property
    def token(self) -> int:
        """Bytes of one token's keys and values, in all heads of all layers."""
        return 2 * self.num_layers * self.width * FLOAT


DEFAULT = DecoderMemorySetting()


def measure(seed: int = 1, report: Report = silent, setting: DecoderMemorySetting = DEFAULT) -> Finding:
    """Run every decoder on texts of every length, and measure its state."""
    kinds, measured = decoders(setting), {}
    for name, config in kinds.items():
        for context in setting.contexts:
            report(f"{name}: tokens", context)
            measured[name, context] = measured_bytes(config, context, seed)
    expected = {(name, context): computed_bytes(setting, name, context) for name, context in measured}
    return Finding(
        title="Memory of the key-value cache",
        claim="the state of attention grows in proportion to the context; the state of a recurrent network does not.",
        setting={
            "layers": setting.num_layers,
            "width": setting.width,
            "heads": setting.num_heads,
            "window": setting.window,
        },
        columns=("decoder", *(f"{context:,} tokens" for context in setting.contexts), "computed, longest"),
        rows=tuple(
            (
                name,
                *(_mebibytes(measured[name, context]) for context in setting.contexts),
                _mebibytes(expected[name, setting.contexts[-1]]),
            )
            for name in kinds
        ),
        charts=(
            Chart(
                "Decoding state of one text",
                "context length",
                "MiB",
                tuple(
                    Series(
                        name,
                        tuple(map(float, setting.contexts)),
                        tuple(measured[name, context] / 2**20 for context in setting.contexts),
                    )
                    for name in kinds
                ),
                log_x=True,
                log_y=True,
            ),
        ),
        checks=_checks(setting, measured, expected),
    )


def decoders(setting: DecoderMemorySetting) -> dict[str, Config]:
    """Return the decoders by name: full attention, four variants with a smaller state, and an LSTM."""
    plain = GptConfig(
        model_dim=setting.width,
        num_heads=setting.num_heads,
        num_layers=setting.num_layers,
        ffn_dim=setting.width,
        positions="rotary",
        dropout=0.0,
    )
    recurrent = RnnConfig(
        cell="lstm",
        embedding_dim=setting.width,
        hidden_dim=setting.width,
        num_layers=setting.num_layers,
        bidirectional=False,
        attention="none",
        dropout=0.0,
    )
    return {
        "full": plain,
        "grouped": plain.but(key_value_heads=setting.shared),
        "multi-query": plain.but(key_value_heads=1),
        "window": plain.but(attention="window", window=setting.window),
        "linear": plain.but(attention="linear", positions="sinusoidal"),
        "LSTM": recurrent,
    }


def measured_bytes(config: Config, context: int, seed: int) -> int:
    """Return the bytes of a model's state after `context` tokens."""
    model = cast("AnyTransducer", build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed).eval())
    token_1N = torch.randint(VOCABULARY, (1, context), generator=torch_generator(seed))
    source = token_1N[:, :1] if model.has_source else token_1N[:, :0]
    with torch.no_grad():
        state = model.start(model.encode(source, torch.ones_like(source, dtype=torch.bool)))
        _, state = model.extend(token_1N, torch.tensor([context]), state)
    return size(tensors(state))


def computed_bytes(setting: DecoderMemorySetting, name: str, context: int) -> int:
    """Return the bytes of a state, computed from the sizes."""
    key_dim = setting.width // setting.num_heads
    return {
        "full": setting.token * context,
        "grouped": setting.token * context * setting.shared // setting.num_heads,
        "multi-query": setting.token * context // setting.num_heads,
        "window": setting.token * (setting.window + 1),
        "linear": setting.num_layers * setting.num_heads * (key_dim + 1) * key_dim * FLOAT,
        "LSTM": setting.token,
    }[name]


def _checks(
    setting: DecoderMemorySetting, measured: dict[tuple[str, int], int], expected: dict[tuple[str, int], int]
) -> tuple[ClaimCheck, ...]:
    first, last = setting.contexts[0], setting.contexts[-1]
    growth = {name: measured[name, last] / measured[name, first] for name, _ in measured}
    off = max(abs(measured[place] / expected[place] - 1) for place in measured if place[1] == last)
    share = {name: measured["full", last] / measured[name, last] for name in growth}
    times = last / first
    return (
        ClaimCheck(f"measured sizes equal computed sizes (within {off:.1%})", off < CLOSE),
        ClaimCheck(
            f"from {first:,} to {last:,} tokens, × {times:g}, keys and values grow × {growth['full']:.1f}",
            abs(growth["full"] / times - 1) < CLOSE,
        ),
        ClaimCheck(f"an LSTM's state grows × {growth['LSTM']:.1f}", growth["LSTM"] == 1),
        ClaimCheck(
            "the state of an LSTM of the same width is as large as the keys and values of a single token "
            f"({measured['LSTM', last]:,} bytes, {setting.token:,})",
            abs(measured["LSTM", last] / setting.token - 1) < CLOSE,
        ),
        ClaimCheck(
            f"sharing keys and values reduces the cache in proportion: {setting.shared} instead of {setting.num_heads} "
            f"heads to 1/{share['grouped']:.1f}, one head to 1/{share['multi-query']:.1f}",
            abs(share["grouped"] * setting.shared / setting.num_heads - 1) < CLOSE
            and abs(share["multi-query"] / setting.num_heads - 1) < CLOSE,
        ),
        ClaimCheck(
            f"the state grows with every kind of attention: with a window (× {growth['window']:.1f}) and with "
            f"linear attention (× {growth['linear']:.1f})",
            min(growth["window"], growth["linear"]) > 1 + CLOSE,
        ),
    )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 2**20 else f"{count / 2**10:.3g} KiB"
