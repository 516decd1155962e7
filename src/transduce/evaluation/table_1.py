"""Table 1 of "Attention Is All You Need": what one layer of each kind costs, for a length and a width.

Vaswani et al. (2017), section 4. The numbers are the orders' own arguments, without the constants that the
paper's O(…) leaves out: they rank the layers and show how each grows; `cost` counts a real model's operations.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from transduce.errors import SettingsError


@dataclass(frozen=True)
class LayerCost:
    """One row of the table, as formulas and as numbers."""

    layer: str
    complexity: str
    operations: int
    sequential: str
    sequential_operations: int
    path: str
    path_length: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def table_1(length: int, model_dim: int, kernel: int = 3, window: int = 64) -> list[LayerCost]:
    """Return the table's four rows for n = `length`, d = `model_dim`, k = `kernel` and r = `window`.

    Convolutions are dilated, as in ByteNet, hence log_k(n); contiguous kernels need n/k layers. A window wider than
    the sequence is the whole sequence.
    """
    if min(length, model_dim, window) < 1:
        raise SettingsError(
            f"Table 1 needs a length, width and window of at least 1, not {length}, {model_dim} and {window}"
        )
    if kernel < 2:
        raise SettingsError(f"a convolution of width {kernel} does not connect positions; give a width of at least 2")
    n, d, k, r = length, model_dim, kernel, min(window, length)
    return [
        LayerCost("self-attention", "n²·d", n * n * d, "1", 1, "1", 1),
        LayerCost("recurrent", "n·d²", n * d * d, "n", n, "n", n),
        LayerCost("convolutional", "k·n·d²", k * n * d * d, "1", 1, "log_k(n)", _layers_to_reach(n, k)),
        LayerCost("self-attention (restricted)", "r·n·d", r * n * d, "1", 1, "n/r", -(-n // r)),
    ]


def _layers_to_reach(length: int, kernel: int) -> int:
    """Return log_kernel(length) rounded up, in whole numbers: how many dilated layers connect all positions."""
    layers, reach = 1, kernel
    while reach < length:
        layers, reach = layers + 1, reach * kernel
    return layers
