"""How much of a gradient reaches back k tokens: recurrent networks of several kinds, and attention.

Measured is the Frobenius norm of d state_t / d input_{t-k}, in double precision, of layers that were drawn and not
trained. For a plain recurrent network it is also computed as what it is said to be, a product of k Jacobians.
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
"""Shares of the gradient at distance 1."""
STEADY = 10.0
"""By which factor a gradient may change with distance and still be called the same."""

Read = Callable[[Tensor], Tensor]
"""(B T D) -> (B T D)."""


@dataclass(frozen=True)
class GradientSetting:
    """Sizes, and how large recurrent weights are."""

    dim: int = 32
    length: int = 128
    distances: tuple[int, ...] = (1, 10, 30, 100)
    """Columns of the table, the first 1; the last is what verdicts are about."""
    sequences: int = 8
    gains: tuple[float, float, float] = (0.7, 1.5, 3.0)
    """A plain network's recurrent matrix is a rotation times this, so that all its singular values are this number:
    below 1, a little above it, and far above it."""
    open_bias: float = 5.0
    """Bias of gates that remember: 1 / (1 + e^-5) = 99.3 % of what was there passes to the next step."""
    blocks: int = 4
    """Of the deeper stack of attention."""


DEFAULT = GradientSetting()


def measure(seed: int = 1, report: Report = silent, setting: GradientSetting = DEFAULT) -> Finding:
    """Draw the layers, let each read the same sequences, and follow the gradient of its last state back."""
    generator = torch_generator(seed)
    shape, farthest = (setting.sequences, setting.length, setting.dim), setting.distances[-1]
    input_BTD = torch.randn(shape, generator=generator, dtype=torch.float64)
    plain = [plain_network(gain, setting.dim, seed) for gain in setting.gains]
    reads = {
        **{f"RNN, weights {gain:g}": _states(net) for gain, net in zip(setting.gains, plain, strict=True)},
        "LSTM, as first drawn": _states(gated_network("lstm", setting.dim, seed)),
        "GRU, as first drawn": _states(gated_network("gru", setting.dim, seed)),
        "LSTM, gates that remember": _states(gated_network("lstm", setting.dim, seed, setting.open_bias)),
        "GRU, gates that remember": _states(gated_network("gru", setting.dim, seed, setting.open_bias)),
        "self-attention, 1 block": attention(1, setting.dim, seed),
        f"self-attention, {setting.blocks} blocks": attention(setting.blocks, setting.dim, seed),
    }
    norms = {}
    for number, (name, read) in enumerate(reads.items()):
        report("layers", number)
        norms[name] = by_distance(read, input_BTD, farthest)
    product_K = by_product(plain[0], input_BTD, farthest)
    lines = list(norms.values())
    return Finding(
        title="Gradients through time",
        claim="a recurrent network's gradient is a product of one Jacobian per step, so it vanishes or explodes with "
        "distance; gates mitigate that, and attention, whose path is one step, is spared.",
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
    """tanh(Ux + Wh) with W a random rotation (or reflection) times `gain`."""
    network = Recurrence("rnn", dim, dim).double()
    initialize(network, seed)
    drawn = torch.randn(dim, dim, generator=torch_generator(seed), dtype=torch.float64)
    with torch.no_grad():
        _weight(network, "weight_hh").copy_(gain * torch.linalg.qr(drawn).Q)
    return network


def gated_network(cell: Cell, dim: int, seed: int, remembering: float = 0.0) -> Recurrence:
    """An LSTM or GRU; the gate that keeps what was there (forget, update) has this bias. It is the second in both."""
    network = Recurrence(cell, dim, dim).double()
    initialize(network, seed)
    with torch.no_grad():
        _weight(network, "bias_hh")[dim : 2 * dim] = remembering
    return network


def attention(blocks: int, dim: int, seed: int) -> Read:
    """The paper's blocks with the future hidden: attention, feed-forward, residuals, norms."""
    config = BlockConfig(model_dim=dim, num_heads=4, ffn_dim=4 * dim, dropout=0.0)
    stack = nn.ModuleList(EncoderBlock(config) for _ in range(blocks)).double()
    initialize(stack, seed)

    def read(hidden_BTD: Tensor) -> Tensor:
        for block in stack:
            hidden_BTD = block(hidden_BTD, None, causal=True)
        return hidden_BTD

    return read


def by_distance(read: Read, inputs: Tensor, farthest: int) -> Tensor:
    """Return the norm of d state_last / d input_{last-k} for k = 1 …, its geometric mean over sequences.  -> (K)."""
    inputs = inputs.clone().requires_grad_()
    last_BD = read(inputs)[:, -1]
    square_BT = inputs.new_zeros(inputs.shape[:2])
    for unit_B in last_BD.unbind(dim=1):
        (gradient_BTD,) = torch.autograd.grad(unit_B.sum(), inputs, retain_graph=True)
        square_BT += gradient_BTD.square().sum(dim=-1)
    return _mean_back(square_BT.sqrt(), farthest)


def by_product(network: Recurrence, inputs: Tensor, farthest: int) -> Tensor:
    """The same of a plain network, from its states alone: J_t J_{t-1} … times d state_{t-k} / d input_{t-k}.  -> (K).

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
    """From the last position back, beginning with the one before it.  -> (K)."""
    return norm_BT.log().mean(dim=0).exp().flip(0)[1 : farthest + 1]


def _weight(network: Recurrence, name: str) -> Tensor:
    return network.layers[0].get_parameter(f"{name}_l0")


def _states(network: Recurrence) -> Read:
    def read(inputs_BTD: Tensor) -> Tensor:
        states_BTD: Tensor = network(inputs_BTD)[0]
        return states_BTD

    return read


def _share(norm_K: Tensor) -> float:
    """The gradient at the farthest distance, as a share of that at 1."""
    return (norm_K[-1] / norm_K[0]).item()


def _per_token(norm_K: Tensor) -> float:
    return math.exp(math.log(_share(norm_K)) / (len(norm_K) - 1))


def _checks(setting: GradientSetting, lines: list[Tensor], difference: float) -> tuple[ClaimCheck, ...]:
    shares = [_share(norm_K) for norm_K in lines]
    (below, above, far), gated, remembering, looking = shares[:3], shares[3:5], shares[5:7], shares[7:]
    farthest, gains = setting.distances[-1], setting.gains
    return (
        ClaimCheck(
            f"the gradient of a plain network is the product of its steps' Jacobians (difference {difference:.1g})",
            difference < 1e-6,
        ),
        ClaimCheck(
            f"with weights of {gains[0]:g} it vanishes: {farthest} tokens back, {below:.1g} of it is left",
            below < VANISHED,
        ),
        ClaimCheck(
            f"with weights of {gains[2]:g} it explodes: {farthest} tokens back it is {far:.1g} times larger",
            far > EXPLODED,
        ),
        ClaimCheck(
            f"it grows as soon as weights are above 1: with {gains[1]:g} it is {above:.2g} times what it was (tanh's "
            "slope, which is below 1, counts too)",
            above > 1,
        ),
        ClaimCheck(
            f"gates by themselves keep it from vanishing: {gated[0]:.1g} (LSTM) and {gated[1]:.1g} (GRU) is left "
            "before training, half of what was there being forgotten at each step",
            min(gated) > VANISHED,
        ),
        ClaimCheck(
            f"gates that remember keep it within a factor of {STEADY:g}: {remembering[0]:.2g} and {remembering[1]:.2g}",
            all(1 / STEADY < share < STEADY for share in remembering),
        ),
        ClaimCheck(
            f"attention keeps it within a factor of {STEADY:g} at any distance, without having learnt anything: "
            f"{looking[0]:.2g} through one block, {looking[1]:.2g} through {setting.blocks}",
            all(1 / STEADY < share < STEADY for share in looking),
        ),
    )


def _chart(norms: dict[str, Tensor]) -> Chart:
    series = (Series(name, tuple(range(1, len(norm_K) + 1)), tuple(norm_K.tolist())) for name, norm_K in norms.items())
    title = "Gradient of the last state at an earlier input"
    return Chart(title, "tokens back", "Frobenius norm", tuple(series), log_y=True)
