"""Arrays of pages: what is decoded is what was given, to the promised precision."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from transduce.inspection.arrays import float_array, share_array, to_shares16


def test_shares_are_exact_to_a_hundred_thousandth_from_0_to_1() -> None:
    values = np.concatenate([np.linspace(0, 1, 100_003), [np.nextafter(1, 0), 1.00001, -0.00001]]).astype(np.float32)
    given = share_array(values[None])
    decoded = np.frombuffer(base64.b64decode(given["shares16"]), "<u2").reshape(given["shape"]) / 65520
    assert given["shape"] == [1, len(values)]
    np.testing.assert_allclose(decoded[0], values.clip(0, 1), rtol=0, atol=7.7e-6)
    assert to_shares16(np.array([0, 1], dtype=np.float32)).tolist() == [0, 65520]


@pytest.mark.parametrize("wrong", [1.5, -0.5, float("nan"), float("inf")])
def test_what_is_no_share_is_rejected(wrong: float) -> None:
    with pytest.raises(ValueError, match="not shares"):
        to_shares16(np.array([0.5, wrong], dtype=np.float32))


def test_other_numbers_are_kept_as_they_are() -> None:
    values = np.array([[-1e30, 0.1, 3.0]], dtype=np.float32)
    given = float_array(values)
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(given["float32"]), "<f4").reshape(1, 3), values)
