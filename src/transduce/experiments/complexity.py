"""Cost per layer against length n and width d: the orders of Table 1, and measurements of real layers.

Operations are those of the matrix products of this project's layers, projections included. Times are of the forward and
backward pass of one sequence. A path length is the number of stacked layers until a gradient reaches the first
position; one recurrent layer counts as one step per position.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transduce.experiments.finding import Chart, ClaimCheck, Finding, Report, Series, silent
from transduce.inspection.cost import LayerCost, counted, table_1
from transduce.nn.attention.kernel import KernelAttention
from transduce.nn.attention.multi_head import HeadShape, SelfAttention
from transduce.nn.attention.pattern import Window
from transduce.nn.convolution import CausalConvolution
from transduce.nn.initialization import initialize
from transduce.nn.recurrence import Recurrence
from transduce.rng import torch_generator

MAX_LAYERS = 1000


@dataclass(frozen=True)
class ComplexitySetting:
    """Lengths, widths and layer sizes."""

    lengths: tuple[int, ...] = (16, 64, 256, 1024)
    dims: tuple[int, ...] = (64, 512)
    heads: int = 8
    kernel: int = 3
    window: int = 64
    path_dim: int = 8
    """Width of the layers in which paths are measured; path lengths do not depend on it."""
    repeats: int = 5
    """Timed repetitions; the shortest counts, because other processes only add to it."""


DEFAULT = ComplexitySetting()


@dataclass(frozen=True)
class Point:
    """One layer at one length and width."""

    length: int
    dim: int
    table: LayerCost
    operations: int
    path: int
    seconds: float

    @property
    def rate(self) -> float:
        """Operations per second; the backward pass needs twice the operations of the forward pass."""
        return 3 * self.operations / self.seconds


def measure(seed: int = 1, report: Report = silent, setting: ComplexitySetting = DEFAULT) -> Finding:
    """Build the four layers of Table 1 in every size; count their operations, measure their paths and times."""
    points = []
    for length in setting.lengths:
        paths = [path_length(kind, length, setting, seed) for kind in LAYERS]
        for dim in setting.dims:
            report("length", length)
            rows = table_1(length, dim, setting.kernel, setting.window)
            for kind, row, path in zip(LAYERS, rows, paths, strict=True):
                layer = LAYERS[kind](dim, 0, length, setting)
                initialize(layer, seed)
                seconds = shortest_time(layer, length, dim, setting.repeats, seed)
                operations = count(kind, length, dim, setting)
                points.append(Point(length, dim, row, operations, path, seconds))
    return Finding(
        title="Cost per layer and path length",
        claim="self-attention connects any two positions in one step and is cheaper than recurrence where n < d; "
        "where n > d recurrence needs fewer operations and still takes longer, because its steps are sequential.",
        setting={
            "k": setting.kernel,
            "r": setting.window,
            "heads": setting.heads,
            "timed repetitions": setting.repeats,
        },
        columns=(
            *("n", "d", "layer", "Table 1", "its value", "operations", "sequential", "path", "measured path"),
            *("milliseconds", "operations/µs"),
        ),
        rows=tuple(_row(point) for point in points),
        charts=_charts(setting, points),
        checks=_checks(points),
    )


class Recurrent(nn.Module):
    """A plain recurrent layer as a map from sequence to sequence."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.recurrence = Recurrence("rnn", dim, dim)

    def forward(self, sequence: Tensor) -> Tensor:
        """(B T D) -> (B T D)."""
        states: Tensor = self.recurrence(sequence)[0]
        return states


class ConvolutionLayer(nn.Module):
    """A dilated causal convolution; the first of a stack has depth 0 and dilation 1."""

    def __init__(self, dim: int, kernel: int, depth: int) -> None:
        super().__init__()
        self.convolution = CausalConvolution(dim, [dim], kernel, kernel**depth)

    def forward(self, sequence: Tensor) -> Tensor:
        """(B T D) -> (B T D)."""
        mixed: Tensor = self.convolution(sequence, self.convolution.first_window(len(sequence), sequence))[0]
        return mixed


class RestrictedAttention(nn.Module):
    """Attention within a neighbourhood: a position and the `window` before it."""

    def __init__(self, dim: int, shape: HeadShape, window: int) -> None:
        super().__init__()
        self.attention = KernelAttention(dim, shape, False, 0.0, Window(shape.key_dim**-0.5, window))

    def forward(self, sequence: Tensor) -> Tensor:
        """(B T D) -> (B T D)."""
        mixed: Tensor = self.attention(sequence, causal=True)
        return mixed


def _shape(dim: int, setting: ComplexitySetting) -> HeadShape:
    return HeadShape.plain(setting.heads, dim // setting.heads, dim // setting.heads)


LAYERS: dict[str, Callable[[int, int, int, ComplexitySetting], nn.Module]] = {
    "self-attention": lambda dim, depth, length, setting: SelfAttention(dim, _shape(dim, setting)),
    "recurrent": lambda dim, depth, length, setting: Recurrent(dim),
    "convolutional": lambda dim, depth, length, setting: ConvolutionLayer(dim, setting.kernel, depth),
    "restricted": lambda dim, depth, length, setting: RestrictedAttention(
        dim, _shape(dim, setting), min(setting.window, length)
    ),
}
"""In Table 1's order: (width, depth in the stack, length, setting) -> a layer."""


def count(kind: str, length: int, dim: int, setting: ComplexitySetting) -> int:
    """Count the operations of a layer's matrix products in the forward pass (a multiply-add is two)."""
    with torch.device("meta"):
        layer = LAYERS[kind](dim, 0, length, setting)
        return counted(lambda: layer(torch.zeros(1, length, dim)))[1]


def path_length(kind: str, length: int, setting: ComplexitySetting, seed: int) -> int:
    """Return the number of steps between the first input and the last output.

    Layers are stacked until the gradient is not zero. A recurrent layer takes one step per position.
    """
    generator = torch_generator(seed)
    input_BTD = torch.randn(1, length, setting.path_dim, generator=generator, dtype=torch.float64).requires_grad_()
    hidden_BTD: Tensor = input_BTD
    for depth in range(MAX_LAYERS):
        layer = LAYERS[kind](setting.path_dim, depth, length, setting).double()
        initialize(layer, seed + depth)
        hidden_BTD = layer(hidden_BTD)
        (gradient_BTD,) = torch.autograd.grad(hidden_BTD[:, -1].sum(), input_BTD, retain_graph=True)
        if bool(gradient_BTD[:, 0].any()):
            return length if kind == "recurrent" else depth + 1
    raise AssertionError(f"{kind} does not connect {length} positions")


def shortest_time(layer: nn.Module, length: int, dim: int, repeats: int, seed: int) -> float:
    """Return the seconds of the forward and backward pass of one sequence, after a warm-up pass.

    With one thread, CPU time is measured, which excludes other processes.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    input_BTD = torch.randn(1, length, dim, generator=torch_generator(seed)).requires_grad_()
    times = []
    for _ in range(repeats + 1):
        began = clock()
        torch.autograd.grad(layer(input_BTD).sum(), [input_BTD, *layer.parameters()], allow_unused=True)
        times.append(clock() - began)
    return min(times[1:])


def _row(point: Point) -> tuple[str | int | float, ...]:
    table = point.table
    return (
        *(point.length, point.dim, table.layer, table.complexity, table.operations, point.operations),
        *(table.sequential_operations, table.path_length, point.path, 1e3 * point.seconds, point.rate / 1e6),
    )


def _checks(points: Sequence[Point]) -> tuple[ClaimCheck, ...]:
    sizes = [points[at : at + len(LAYERS)] for at in range(0, len(points), len(LAYERS))]
    pairs = [(attention, recurrent) for attention, recurrent, *_ in sizes]
    cheaper = [attention for attention, recurrent in pairs if attention.operations < recurrent.operations]
    short = [attention for attention, _ in pairs if attention.length < attention.dim]
    fewer = [pair for pair in pairs if pair[1].operations < pair[0].operations]
    slower = [pair for pair in fewer if pair[1].seconds > pair[0].seconds]
    long = [pair for pair in pairs if pair[1].length > pair[1].dim]
    slower_long = [pair for pair in long if pair[1].seconds > pair[0].seconds]
    rates = [convolutional.rate / recurrent.rate for _, recurrent, convolutional, _ in sizes]
    traced = [p for p in points if p.dim == points[0].dim and p.table.layer != "recurrent"]
    right = [point for point in traced if point.path == point.table.path_length]
    return (
        ClaimCheck(
            f"path lengths equal those of Table 1 ({len(right)} of {len(traced)} measured; a recurrent layer has one "
            "step per position by definition)",
            len(right) == len(traced),
        ),
        ClaimCheck(
            "where n < d, self-attention needs fewer operations than recurrence (including its four "
            f"projections, which Table 1 omits, in {sum(one in cheaper for one in short)} of {len(short)} sizes)",
            all(one in cheaper for one in short),
        ),
        ClaimCheck(
            f"a recurrent layer can need fewer operations and take longer (in {len(slower)} of {len(pairs)} sizes"
            f"{_clearest(slower)})",
            bool(slower),
        ),
        ClaimCheck(
            f"where n > d, it always takes longer (in {len(slower_long)} of {len(long)} sizes)",
            len(slower_long) == len(long),
        ),
        ClaimCheck(
            "each of its sequential operations takes longer than one of a convolution, which computes products of the "
            f"same kind for all positions at once ({min(rates):.1f} to {max(rates):.1f} times as long)",
            min(rates) > 1,
        ),
    )


def _clearest(pairs: Sequence[tuple[Point, Point]]) -> str:
    """Name the size with the largest ratio of recurrent time to attention time."""
    if not pairs:
        return ""
    attention, recurrent = max(pairs, key=lambda pair: pair[1].seconds / pair[0].seconds)
    operations, seconds = recurrent.operations / attention.operations, recurrent.seconds / attention.seconds
    place = f"n = {attention.length}, d = {attention.dim}"
    return f": at {place}, {operations:.2g} of the operations take {seconds:.2g} times as long"


def _charts(setting: ComplexitySetting, points: Sequence[Point]) -> tuple[Chart, ...]:
    def chart(dim: int, what: str, unit: str, value: Callable[[Point], float]) -> Chart:
        shown = [point for point in points if point.dim == dim]
        series = (
            Series(kind, setting.lengths, tuple(value(point) for point in shown[number :: len(LAYERS)]))
            for number, kind in enumerate(LAYERS)
        )
        return Chart(f"{what}, d = {dim}", "n", unit, tuple(series), log_x=True, log_y=True)

    return tuple(
        one
        for dim in setting.dims
        for one in (
            chart(dim, "Operations", "operations, forward", lambda point: point.operations),
            chart(dim, "Time", "milliseconds, forward and backward", lambda point: 1e3 * point.seconds),
        )
    )
