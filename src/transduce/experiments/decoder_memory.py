"""What a decoder keeps, against how much it has read: keys and values beside a recurrent state.

Every number is computed from the sizes and counted on the state of a real model that has read so many tokens. Numbers
are float32; a server would keep 16 bits, half of it.
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
"""Bytes of a number."""
VOCABULARY = 16
"""Tokens; what is kept does not depend on it."""
CLOSE = 0.02
"""Share by which what was counted may differ from what was computed: which slots are whose, and lengths."""


@dataclass(frozen=True)
class DecoderMemorySetting:
    """Sizes of the decoders: those of the paper's base model."""

    width: int = 512
    num_heads: int = 8
    num_layers: int = 6
    shared: int = 2
    """Heads of keys and values with grouped queries."""
    window: int = 128
    contexts: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    """Tokens read; growing, from no more than the window to beyond it."""

    @property
    def token(self) -> int:
        """Bytes of one token's keys and values, in all heads of all layers."""
        return 2 * self.num_layers * self.width * FLOAT


DEFAULT = DecoderMemorySetting()


def measure(seed: int = 1, report: Report = silent, setting: DecoderMemorySetting = DEFAULT) -> Finding:
    """Let every kind of decoder read texts of every length, and count what it keeps."""
    kinds, counted = decoders(setting), {}
    for name, config in kinds.items():
        for context in setting.contexts:
            report(f"{name}: tokens", context)
            counted[name, context] = kept(config, context, seed)
    expected = {(name, context): computed(setting, name, context) for name, context in counted}
    return Finding(
        title="Memory of keys and values",
        claim="what attention keeps grows in proportion to the context; what a recurrent network keeps does not.",
        setting={
            "layers": setting.num_layers,
            "width": setting.width,
            "heads": setting.num_heads,
            "window": setting.window,
        },
        columns=("decoder", *(f"{context:,} tokens" for context in setting.contexts), "computed, last"),
        rows=tuple(
            (
                name,
                *(_mebibytes(counted[name, context]) for context in setting.contexts),
                _mebibytes(expected[name, setting.contexts[-1]]),
            )
            for name in kinds
        ),
        charts=(
            Chart(
                "What one text needs while it is written",
                "tokens read",
                "MiB",
                tuple(
                    Series(
                        name,
                        tuple(map(float, setting.contexts)),
                        tuple(counted[name, context] / 2**20 for context in setting.contexts),
                    )
                    for name in kinds
                ),
                log_x=True,
                log_y=True,
            ),
        ),
        checks=_checks(setting, counted, expected),
    )


def decoders(setting: DecoderMemorySetting) -> dict[str, Config]:
    """Return the decoders by name: plain attention, three ways to keep less of it, and recurrence."""
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


def kept(config: Config, context: int, seed: int) -> int:
    """Let a model read so many tokens; return the bytes of its state."""
    model = cast("AnyTransducer", build(config, VocabularySizes(VOCABULARY, VOCABULARY), seed).eval())
    token_1N = torch.randint(VOCABULARY, (1, context), generator=torch_generator(seed))
    source = token_1N[:, :1] if model.has_source else token_1N[:, :0]
    with torch.no_grad():
        state = model.start(model.encode(source, torch.ones_like(source, dtype=torch.bool)))
        _, state = model.extend(token_1N, torch.tensor([context]), state)
    return size(tensors(state))


def computed(setting: DecoderMemorySetting, name: str, context: int) -> int:
    """Return the bytes that follow from the sizes."""
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
    setting: DecoderMemorySetting, counted: dict[tuple[str, int], int], expected: dict[tuple[str, int], int]
) -> tuple[ClaimCheck, ...]:
    first, last = setting.contexts[0], setting.contexts[-1]
    growth = {name: counted[name, last] / counted[name, first] for name, _ in counted}
    off = max(abs(counted[place] / expected[place] - 1) for place in counted if place[1] == last)
    share = {name: counted["full", last] / counted[name, last] for name in growth}
    times = last / first
    return (
        ClaimCheck(f"what was counted is what was computed (within {off:.1%})", off < CLOSE),
        ClaimCheck(
            f"from {first:,} to {last:,} tokens, × {times:g}, keys and values grow × {growth['full']:.1f}",
            abs(growth["full"] / times - 1) < CLOSE,
        ),
        ClaimCheck(f"an LSTM's state grows × {growth['LSTM']:.1f}", growth["LSTM"] == 1),
        ClaimCheck(
            "all layers of an LSTM of the same width keep as much as attention keeps of a single token "
            f"({counted['LSTM', last]:,} bytes, {setting.token:,})",
            abs(counted["LSTM", last] / setting.token - 1) < CLOSE,
        ),
        ClaimCheck(
            f"heads that share keys and values keep so much less: {setting.shared} instead of {setting.num_heads} "
            f"1/{share['grouped']:.1f}, one 1/{share['multi-query']:.1f}",
            abs(share["grouped"] * setting.shared / setting.num_heads - 1) < CLOSE
            and abs(share["multi-query"] / setting.num_heads - 1) < CLOSE,
        ),
        ClaimCheck(
            f"growth is a matter of attention as such: it is there with a window (× {growth['window']:.1f}) and with "
            f"linear attention (× {growth['linear']:.1f})",
            min(growth["window"], growth["linear"]) > 1 + CLOSE,
        ),
    )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 2**20 else f"{count / 2**10:.3g} KiB"
