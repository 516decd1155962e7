"""Arrays as JSON values, as `page/lib/arrays.js` decodes them; little-endian, in base64.

Shares, such as attention weights, are 16-bit integers in steps of 1/65520: exact to 7.7e-6 everywhere, where float16
has an error of 2.4e-4 near 1. 65520 is a multiple of all numbers up to 10, so that 1/2 or 1/3 is what it was. Other
numbers are float32.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]

SHARE_STEPS = 65520
_SLACK = 1e-4
"""How far rounding may take a weight out of [0, 1]."""


def to_shares16(values: Values) -> npt.NDArray[np.uint16]:
    """Return numbers from 0 to 1 as multiples of 1/65520, rounded to the nearest."""
    if values.size and not (values.min() >= -_SLACK and values.max() <= 1 + _SLACK):  # not a number neither
        raise ValueError(f"not shares: values from {values.min()} to {values.max()}")
    return np.rint(values.clip(0, 1).astype(np.float64) * SHARE_STEPS).astype("<u2")


def share_array(values: Values) -> dict[str, Any]:
    """Return an array of numbers from 0 to 1 as JSON values."""
    return {"shape": list(values.shape), "shares16": _base64(to_shares16(values))}


def float_array(values: Values) -> dict[str, Any]:
    """Return an array of any numbers as JSON values."""
    return {"shape": list(values.shape), "float32": _base64(values.astype("<f4"))}


def _base64(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
