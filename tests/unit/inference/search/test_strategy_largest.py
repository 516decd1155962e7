"""The largest of each row, against `topk`."""

from __future__ import annotations

import pytest
import torch

from transduce.inference.search.strategy import BLOCK, largest


@pytest.mark.parametrize("size", [1, 7, 4 * BLOCK, 5 * BLOCK + 1, 8 * BLOCK - 1, 41 * BLOCK + 13])
@pytest.mark.parametrize("count", [1, 2, 10, 17])
def test_the_largest_are_those_of_topk(size: int, count: int) -> None:
    count = min(count, size)
    number = torch.randn(3, 2, size, generator=torch.Generator().manual_seed(size * 31 + count))
    number[0, 0, : size // 2] = -torch.inf
    number[1, 0] = number[1, 0].sort().values  # all of them at the end, behind the last whole block
    number[1, 1] = number[1, 1].sort(descending=True).values
    value, place = largest(number, count)
    assert torch.equal(value, number.topk(count).values)
    assert torch.equal(number.gather(-1, place), value)
    assert all(len(set(row)) == count for row in place.flatten(0, 1).tolist())


def test_rows_without_any_number_to_choose_give_minus_infinity() -> None:
    value, place = largest(torch.full((2, 50 * BLOCK), -torch.inf), 3)
    assert value.isneginf().all() and place.max() < 50 * BLOCK
