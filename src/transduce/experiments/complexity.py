"""What one layer of each kind costs against length n and width d: Table 1's orders, and real layers beside them.

Operations are counted in the matrix products of the project's own layers, projections included; times are of one
sequence, forwards and backwards; path lengths are found by asking through how many layers a gradient arrives, but for
recurrence, where one layer is as many steps as there are positions.
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

MOST_LAYERS = 1000


@dataclass(frozen=True)
class ComplexitySetting:
    """Which lengths and widths."""

    lengths: tuple[int, ...] = (16, 64, 256, 1024)
    dims: tuple[int, ...] = (64, 512)
    heads: int = 8
    kernel: int = 3
    window: int = 64
    path_dim: int = 8
    """Width of the layers that paths are followed through; it does not matter for them."""
    repeats: int = 5
    """How often a time is taken; the shortest counts, for whatever else goes on only adds to it."""


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
        """Operations in a second, both ways: the way back needs twice those of the way there."""
        return 3 * self.operations / self.seconds


def measure(seed: int = 1, report: Report = silent, setting: ComplexitySetting = DEFAULT) -> Finding:
    """Build the four layers of Table 1 in every size, count, follow and time them."""
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
        "where n > d recurrence needs fewer operations and still takes longer, because its steps wait for each other.",
        setting={
            "k": setting.kernel,
            "r": setting.window,
            "heads": setting.heads,
            "times, shortest of": setting.repeats,
        },
        columns=(
            *("n", "d", "layer", "Table 1", "its number", "operations", "in a row", "path", "path followed"),
            *("milliseconds", "operations/µs"),
        ),
        rows=tuple(_row(point) for point in points),
        charts=_charts(setting, points),
        checks=_checks(points),
    )


class Recurrent(nn.Module):
    """A plain recurrent layer, seen as what turns a sequence into another."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.recurrence = Recurrence("rnn", dim, dim)

    def forward(self, sequence: Tensor) -> Tensor:
        """(B T D) -> (B T D)."""
        states: Tensor = self.recurrence(sequence)[0]
        return states


class Convolved(nn.Module):
    """A causal convolution from the beginning of a sequence; the first of a stack has depth 0 and no gaps."""

    def __init__(self, dim: int, kernel: int, depth: int) -> None:
        super().__init__()
        self.convolution = CausalConvolution(dim, [dim], kernel, kernel**depth)

    def forward(self, sequence: Tensor) -> Tensor:
        """(B T D) -> (B T D)."""
        mixed: Tensor = self.convolution(sequence, self.convolution.first_window(len(sequence), sequence))[0]
        return mixed


class Restricted(nn.Module):
    """Attention to a neighbourhood: a position and the `window` before it."""

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
    "convolutional": lambda dim, depth, length, setting: Convolved(dim, setting.kernel, depth),
    "restricted": lambda dim, depth, length, setting: Restricted(
        dim, _shape(dim, setting), min(setting.window, length)
    ),
}
"""In Table 1's order: (width, how deep in a stack, length, setting) -> a layer."""


def count(kind: str, length: int, dim: int, setting: ComplexitySetting) -> int:
    """Count the operations of a layer's matrix products, forwards (a multiply-add is two)."""
    with torch.device("meta"):
        layer = LAYERS[kind](dim, 0, length, setting)
        return counted(lambda: layer(torch.zeros(1, length, dim)))[1]


def path_length(kind: str, length: int, setting: ComplexitySetting, seed: int) -> int:
    """Return how many steps lie between the first input and the last output.

    Layers are stacked until the gradient arrives. A recurrent layer takes a step for every position on the way.
    """
    generator = torch_generator(seed)
    input_BTD = torch.randn(1, length, setting.path_dim, generator=generator, dtype=torch.float64).requires_grad_()
    hidden_BTD: Tensor = input_BTD
    for depth in range(MOST_LAYERS):
        layer = LAYERS[kind](setting.path_dim, depth, length, setting).double()
        initialize(layer, seed + depth)
        hidden_BTD = layer(hidden_BTD)
        (gradient_BTD,) = torch.autograd.grad(hidden_BTD[:, -1].sum(), input_BTD, retain_graph=True)
        if bool(gradient_BTD[:, 0].any()):
            return length if kind == "recurrent" else depth + 1
    raise AssertionError(f"{kind} does not connect {length} positions")


def shortest_time(layer: nn.Module, length: int, dim: int, repeats: int, seed: int) -> float:
    """Return the seconds of reading one sequence and of the way back, after once for nothing.

    One thread is timed by the processor's clock, which stands still while something else has the core.
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
    pairs = [(looks, recurs) for looks, recurs, *_ in sizes]
    cheaper = [looks for looks, recurs in pairs if looks.operations < recurs.operations]
    short = [looks for looks, _ in pairs if looks.length < looks.dim]
    fewer = [(looks, recurs) for looks, recurs in pairs if recurs.operations < looks.operations]
    slower = [(looks, recurs) for looks, recurs in fewer if recurs.seconds > looks.seconds]
    long = [(looks, recurs) for looks, recurs in pairs if recurs.length > recurs.dim]
    slower_long = [pair for pair in long if pair[1].seconds > pair[0].seconds]
    rates = [convolves.rate / recurs.rate for _, recurs, convolves, _ in sizes]
    followed = [p for p in points if p.dim == points[0].dim and p.table.layer != "recurrent"]
    right = [point for point in followed if point.path == point.table.path_length]
    return (
        ClaimCheck(
            f"paths are as long as Table 1 says ({len(right)} of {len(followed)} followed; a recurrent layer's "
            "is one step for each position by its nature)",
            len(right) == len(followed),
        ),
        ClaimCheck(
            "where n < d a self-attention layer needs fewer operations than a recurrent one (with its four "
            f"projections, which Table 1 leaves out, in {sum(one in cheaper for one in short)} of {len(short)} sizes)",
            all(one in cheaper for one in short),
        ),
        ClaimCheck(
            f"a recurrent layer can need fewer operations and take longer (in {len(slower)} of {len(pairs)} sizes"
            f"{_clearest(slower)})",
            bool(slower),
        ),
        ClaimCheck(
            f"where n > d it always takes longer (in {len(slower_long)} of {len(long)} sizes)",
            len(slower_long) == len(long),
        ),
        ClaimCheck(
            "its operations, one step after another, take longer each than a convolution's, which are products of the "
            f"same kind for all positions at once ({min(rates):.1f} to {max(rates):.1f} times as long)",
            min(rates) > 1,
        ),
    )


def _clearest(pairs: Sequence[tuple[Point, Point]]) -> str:
    """Name the size at which least work takes longest."""
    if not pairs:
        return ""
    looks, recurs = max(pairs, key=lambda pair: pair[1].seconds / pair[0].seconds)
    operations, seconds = recurs.operations / looks.operations, recurs.seconds / looks.seconds
    return (
        f": at n = {looks.length}, d = {looks.dim}, {operations:.2g} of the operations take {seconds:.2g} times as long"
    )


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
            chart(dim, "Operations", "operations, forwards", lambda point: point.operations),
            chart(dim, "Time", "milliseconds, both ways", lambda point: 1e3 * point.seconds),
        )
    )
