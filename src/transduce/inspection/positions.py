"""The two pictures of position encodings: the signals themselves, and how alike any two positions are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transduce.errors import SettingsError
from transduce.inspection.picture import as_png, new_figure
from transduce.nn.position import sinusoids

LARGEST = 4096
"""Positions or channels that still make a picture; more than it has dots would only blur."""


def encodings(length: int, dim: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sinusoids of section 3.5 and their dot products.  -> (length, dim), (length, length)."""
    for name, value in (("length", length), ("dim", dim)):
        if not 1 <= value <= LARGEST:
            raise SettingsError(f"{name} = {value} is not possible; give a number from 1 to {LARGEST}")
    signal_TD = sinusoids(length, dim).numpy()
    return signal_TD, signal_TD @ signal_TD.T


def draw_positions(length: int = 100, dim: int = 512) -> bytes:
    """Return a PNG of both pictures side by side.

    Left, a row is the signal that marks one position: fast waves in the first channels, slow ones in the last. Right,
    the darker, the more alike two positions are: the product depends on their distance alone, is greatest (dim / 2)
    on the diagonal and falls off, with ripples, on both sides of it.
    """
    signal_TD, product_TT = encodings(length, dim)
    figure = new_figure(13.0, 5.6)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    waves = left.imshow(signal_TD, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto", interpolation="nearest")
    left.set(title="Position encodings", xlabel="channel (even: sine, odd: cosine)", ylabel="position")
    figure.colorbar(waves, ax=left, pad=0.02, label="value")
    alike = right.imshow(product_TT, cmap="Blues", interpolation="nearest")
    right.set(title="Dot products between positions", xlabel="position", ylabel="position")
    figure.colorbar(alike, ax=right, pad=0.02, label="dot product")
    for axes in (left, right):
        axes.locator_params(integer=True)
    return as_png(figure)
