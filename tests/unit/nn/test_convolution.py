"""Convolutions against torch's own, and windows against whole sequences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.convolution import CausalConvolution, Convolution, Windows

IN, PARTS, ROWS, LENGTH = 5, [7, 3], 4, 13
SHAPES = [(1, 1), (2, 1), (3, 1), (3, 4), (4, 3), (5, 2)]
"""(kernel, dilation)"""


def kernel_of(ours: Convolution | CausalConvolution) -> Tensor:
    """Our weights as `F.conv1d` has them.  (D K·C) -> (D C K)."""
    return ours.linear.weight.unflatten(1, (ours.kernel, IN)).transpose(1, 2)


def torch_answer(ours: Convolution | CausalConvolution, sequence: Tensor, before: int, after: int) -> Tensor:
    padded = F.pad(sequence.transpose(1, 2), (before, after))
    return F.conv1d(padded, kernel_of(ours), ours.linear.bias, dilation=ours.dilation).transpose(1, 2)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_causal_convolution_is_torchs_with_all_padding_on_the_left(kernel: int, dilation: int) -> None:
    ours, sequence = CausalConvolution(IN, PARTS, kernel, dilation).double(), draw(ROWS, LENGTH, IN)
    found, _ = ours(sequence, ours.first_window(ROWS, sequence))
    close(found, torch_answer(ours, sequence, (kernel - 1) * dilation, 0))


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_a_plain_convolution_is_torchs_with_padding_on_both_sides(kernel: int, dilation: int) -> None:
    ours, sequence = Convolution(IN, PARTS, kernel, dilation).double(), draw(ROWS, LENGTH, IN)
    close(ours(sequence), torch_answer(ours, sequence, (kernel - 1) // 2 * dilation, kernel // 2 * dilation))


@pytest.mark.parametrize(("kernel", "dilation"), SHAPES)
def test_reading_piece_by_piece_is_reading_at_once(kernel: int, dilation: int) -> None:
    """Rows read different numbers of inputs at a time; what stands past them is not remembered."""
    ours, sequence = CausalConvolution(IN, PARTS, kernel, dilation).double(), draw(ROWS, LENGTH, IN)
    window, stand = ours.first_window(ROWS, sequence), [0] * ROWS
    expected, _ = ours(sequence, window)
    for lengths in ([3, 0, 5, 1], [0, 2, 1, 4], [1, 1, 1, 1], [2, 3, 0, 0]):
        new = torch.full((ROWS, max(lengths), IN), 1e6, dtype=torch.float64)
        for row, length in enumerate(lengths):
            new[row, :length] = sequence[row, stand[row] : stand[row] + length]
        found, window = ours(new, window, torch.tensor(lengths))
        assert window.shape == (ROWS, (kernel - 1) * dilation, IN)
        for row, length in enumerate(lengths):
            close(found[row, :length], expected[row, stand[row] : stand[row] + length])
            stand[row] += length


def test_windows_are_selected_and_joined_by_row() -> None:
    layers = [CausalConvolution(IN, PARTS, kernel, dilation) for kernel, dilation in SHAPES]
    first, second = Windows.empty(layers, 3, draw(1)), Windows.empty(layers, 2, draw(1))
    assert [window.shape for window in first.layers] == [(3, each.window, IN) for each in layers]
    marked = Windows(tuple(torch.arange(3.0)[:, None, None].expand_as(window) for window in first.layers))
    both = marked.select(torch.tensor([2, 0, 2])).join(second)
    assert both.layers[2][:, 0, 0].tolist() == [2.0, 0.0, 2.0, 0.0, 0.0]
