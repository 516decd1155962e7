"""Places where a value passes and somebody may be listening."""

from __future__ import annotations

from torch import Tensor, nn


class Tap(nn.Module):
    """Hands on what it is given. Listeners attach from outside with `register_forward_hook`.

    A fused kernel never makes the attention weights; a module asks `listening` to know that it must
    take the plain way this time.
    """

    @property
    def listening(self) -> bool:
        """Whether anybody wants to see what passes here."""
        return bool(self._forward_hooks)

    def forward(self, value: Tensor) -> Tensor:
        return value
