"""The gradient k tokens back in time: several recurrent networks, and attention.

Measures the Frobenius norm of d state_t / d input_{t-k}, in double precision, of randomly initialised layers without
training. For a plain recurrent network the norm is also computed as a product of k Jacobians.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, silent
from transduce.models.block import BlockConfig, EncoderBlock
from transduce.nn.initialization import initialize
from transduce.nn.recurrence import Cell, Recurrence
from transduce.rng import torch_generator

VANISHED, EXPLODED = 1e-6, 1e6
"""Relative to the gradient at distance 1."""
STEADY = 10.0
"""Factor by which a gradient may change with distance and still count as constant."""

Layer = Callable[[Tensor], Tensor]
"""(B T D) -> (B T D)."""


@dataclass(frozen=True)
class GradientSetting:
    """Sizes, and scales of the recurrent weights."""

    dim: int = 32
    length: int = 128
    distances: tuple[int, ...] = (1, 10, 30, 100)
    """Columns of the table; the first must be 1, and the checks use the last."""
    sequences: int = 8
    gains: tuple[float, float, float] = (0.7, 1.5, 3.0)
    """A plain network's recurrent matrix is a rotation times this number, which is thus its every singular value: below
    1, a little above it, and far above it."""
    open_bias: float = 5.0
    """Bias of open forget gates: 1 / (1 + e^-5) = 99.3 % of the state passes to the next step."""
    blocks: int = 4
    """Depth of the deeper attention stack."""


DEFAULT = GradientSetting()


def measure(seed: int = 1, report: Report = silent, setting: GradientSetting = DEFAULT) -> Finding:
    """Initialise the layers, run all on the same sequences, and compute the gradient of the last state by distance."""
    generator = torch_generator(seed)
    shape, farthest = (setting.sequences, setting.length, setting.dim), setting.distances[-1]
    input_BTD = torch.randn(shape, generator=generator, dtype=torch.float64)
    plain = [plain_network(gain, setting.dim, seed) for gain in setting.gains]
    layers = {
        **{f"RNN, weights {gain:g}": _states(net) for gain, net in zip(setting.gains, plain, strict=True)},
        "LSTM, initial": _states(gated_network("lstm", setting.dim, seed)),
        "GRU, initial": _states(gated_network("gru", setting.dim, seed)),
        "LSTM, open gates": _states(gated_network("lstm", setting.dim, seed, setting.open_bias)),
        "GRU, open gates": _states(gated_network("gru", setting.dim, seed, setting.open_bias)),
        "self-attention, 1 block": attention(1, setting.dim, seed),
        f"self-attention, {setting.blocks} blocks": attention(setting.blocks, setting.dim, seed),
    }
    norms = {}
    for number, (name, layer) in enumerate(layers.items()):
        report("layers", number)
        norms[name] = by_distance(layer, input_BTD, farthest)
    product_K = by_product(plain[0], input_BTD, farthest)
    lines = list(norms.values())
    return Finding(
        title="Gradients through time",
        claim="a recurrent network's gradient is a product of one Jacobian per step, so it vanishes or explodes with "
        "distance; gates mitigate that, and attention, whose path is one step, avoids it.",
        setting={"width": setting.dim, "tokens": setting.length, "sequences": setting.sequences},
        columns=("layer", *(f"{distance} back" for distance in setting.distances), "factor per token"),
        rows=tuple(
            (name, *(norm_K[distance - 1].item() for distance in setting.distances), _per_token(norm_K))
            for name, norm_K in norms.items()
        ),
        charts=(_chart(norms),),
        checks=_checks(setting, lines, (product_K / lines[0] - 1).abs().max().item()),
    )


def plain_network(gain: float, dim: int, seed: int) -> Recurrence:
    """Return tanh(Ux + Wh) with W a random rotation (or reflection) times `gain`."""
    network = Recurrence("rnn", dim, dim).double()
    initialize(network, seed)
    random_DD = torch.randn(dim, dim, generator=torch_generator(seed), dtype=torch.float64)
    with torch.no_grad():
        _weight(network, "weight_hh").copy_(gain * torch.linalg.qr(random_DD).Q)
    return network


def gated_network(cell: Cell, dim: int, seed: int, open_bias: float = 0.0) -> Recurrence:
    """Return an LSTM or GRU whose forget or update gate has this bias; that gate is the second in both."""
    network = Recurrence(cell, dim, dim).double()
    initialize(network, seed)
    with torch.no_grad():
        _weight(network, "bias_hh")[dim : 2 * dim] = open_bias
    return network


def attention(blocks: int, dim: int, seed: int) -> Layer:
    """Return causal blocks of the paper: attention, feed-forward, residuals, norms."""
    config = BlockConfig(model_dim=dim, num_heads=4, ffn_dim=4 * dim, dropout=0.0)
    stack = nn.ModuleList(EncoderBlock(config) for _ in range(blocks)).double()
    initialize(stack, seed)

    def forward(hidden_BTD: Tensor) -> Tensor:
        for block in stack:
            hidden_BTD = block(hidden_BTD, None, causal=True)
        return hidden_BTD

    return forward


def by_distance(layer: Layer, inputs: Tensor, farthest: int) -> Tensor:
    """Return the norm of d state_last / d input_{last-k} for k = 1 …, its geometric mean over sequences.  -> (K)."""
    inputs = inputs.clone().requires_grad_()
    last_BD = layer(inputs)[:, -1]
    square_BT = inputs.new_zeros(inputs.shape[:2])
    for unit_B in last_BD.unbind(dim=1):
        (gradient_BTD,) = torch.autograd.grad(unit_B.sum(), inputs, retain_graph=True)
        square_BT += gradient_BTD.square().sum(dim=-1)
    return _mean_back(square_BT.sqrt(), farthest)


def by_product(network: Recurrence, inputs: Tensor, farthest: int) -> Tensor:
    """Return the same for a plain network, from its states: J_t J_{t-1} … times d state_{t-k} / d input_{t-k}.  -> (K).

    With h_t = tanh(U x_t + W h_{t-1}), one step's Jacobian J_t is diag(1 - h_t²) W.
    """
    into_DD, over_DD = _weight(network, "weight_ih"), _weight(network, "weight_hh")
    with torch.no_grad():
        slope_BTD = 1 - network(inputs)[0].square()
        product_BDD = torch.eye(inputs.shape[-1], dtype=inputs.dtype).expand(len(inputs), -1, -1)
        norms = []
        for slope_BD in reversed(slope_BTD.unbind(dim=1)):
            norms.append((product_BDD @ (slope_BD[:, :, None] * into_DD)).norm(dim=(1, 2)))
            product_BDD = product_BDD @ (slope_BD[:, :, None] * over_DD)
    return _mean_back(torch.stack(norms[::-1], dim=1), farthest)


def _mean_back(norm_BT: Tensor, farthest: int) -> Tensor:
    """Return the mean norms by distance from the last position, from distance 1.  -> (K)."""
    return norm_BT.log().mean(dim=0).exp().flip(0)[1 : farthest + 1]


def _weight(network: Recurrence, name: str) -> Tensor:
    return network.layers[0].get_parameter(f"{name}_l0")


def _states(network: Recurrence) -> Layer:
    def forward(inputs_BTD: Tensor) -> Tensor:
        states_BTD: Tensor = network(inputs_BTD)[0]
        return states_BTD

    return forward


def _share(norm_K: Tensor) -> float:
    """Return the gradient at the farthest distance, relative to that at 1."""
    return (norm_K[-1] / norm_K[0]).item()


def _per_token(norm_K: Tensor) -> float:
    return math.exp(math.log(_share(norm_K)) / (len(norm_K) - 1))


def _checks(setting: GradientSetting, lines: list[Tensor], difference: float) -> tuple[ClaimCheck, ...]:
    shares = [_share(norm_K) for norm_K in lines]
    (below, above, far), initial, opened, attended = shares[:3], shares[3:5], shares[5:7], shares[7:]
    farthest, gains = setting.distances[-1], setting.gains
    return (
        ClaimCheck(
            f"the gradient of a plain network is the product of its steps' Jacobians (difference {difference:.1g})",
            difference < 1e-6,
        ),
        ClaimCheck(
            f"with weights of {gains[0]:g} it vanishes: {farthest} tokens back, {below:.1g} of it remains",
            below < VANISHED,
        ),
        ClaimCheck(
            f"with weights of {gains[2]:g} it explodes: {farthest} tokens back it is {far:.1g} times larger",
            far > EXPLODED,
        ),
        ClaimCheck(
            f"it grows with all weights above 1: with {gains[1]:g} it changes by a factor of {above:.2g} (the slope of "
            "tanh, which is below 1, matters too)",
            above > 1,
        ),
        ClaimCheck(
            f"gates alone keep it from vanishing: {initial[0]:.1g} (LSTM) and {initial[1]:.1g} (GRU) of it remains "
            "before training, because each step forgets half of the state",
            min(initial) > VANISHED,
        ),
        ClaimCheck(
            f"open gates keep it within a factor of {STEADY:g}: {opened[0]:.2g} and {opened[1]:.2g}",
            all(1 / STEADY < share < STEADY for share in opened),
        ),
        ClaimCheck(
            f"attention keeps it within a factor of {STEADY:g} at any distance, without any training: "
            f"{attended[0]:.2g} through one block, {attended[1]:.2g} through {setting.blocks}",
            all(1 / STEADY < share < STEADY for share in attended),
        ),
    )


def _chart(norms: dict[str, Tensor]) -> Chart:
    series = (Series(name, tuple(range(1, len(norm_K) + 1)), tuple(norm_K.tolist())) for name, norm_K in norms.items())
    title = "Gradient of the last state with respect to an earlier input"
    return Chart(title, "tokens back", "Frobenius norm", tuple(series), log_y=True)
