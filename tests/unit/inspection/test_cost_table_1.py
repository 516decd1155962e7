"""The paper's Table 1 against arithmetic done by hand."""

from __future__ import annotations

import pytest

from transduce.errors import SettingsError
from transduce.inspection.cost import table_1


def test_rows_are_the_formulas_of_the_paper() -> None:
    attention, recurrent, convolution, restricted = table_1(length=50, model_dim=7, kernel=3, window=11)
    assert (attention.operations, attention.sequential_operations, attention.path_length) == (17_500, 1, 1)
    assert (recurrent.operations, recurrent.sequential_operations, recurrent.path_length) == (2_450, 50, 50)
    assert (convolution.operations, convolution.sequential_operations, convolution.path_length) == (7_350, 1, 4)
    assert (restricted.operations, restricted.sequential_operations, restricted.path_length) == (3_850, 1, 5)
    assert [row.complexity for row in table_1(5, 3)] == ["n²·d", "n·d²", "k·n·d²", "r·n·d"]


@pytest.mark.parametrize(("length", "layers"), [(1, 1), (3, 1), (4, 2), (9, 2), (10, 3), (27, 3), (28, 4)])
def test_dilated_convolutions_reach_a_power_of_their_width(length: int, layers: int) -> None:
    assert table_1(length, 5, kernel=3)[2].path_length == layers


def test_self_attention_is_cheaper_than_recurrence_exactly_when_shorter_than_wide() -> None:
    """Section 4 of the paper: "faster than recurrent layers when the sequence length n is smaller than d"."""
    for length in (511, 512, 513):
        attention, recurrent, *_ = table_1(length, 512)
        assert (attention.operations < recurrent.operations) == (length < 512)


def test_a_window_over_the_whole_sequence_is_full_attention() -> None:
    full, _, _, restricted = table_1(13, 7, window=17)
    assert (restricted.operations, restricted.path_length) == (full.operations, full.path_length)


@pytest.mark.parametrize("wrong", [{"length": 0}, {"model_dim": -1}, {"window": 0}, {"kernel": 1}])
def test_nonsense_is_rejected(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        table_1(**{"length": 5, "model_dim": 3, **wrong})
