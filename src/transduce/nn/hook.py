"""Places where a value passes and somebody may be listening, and how to listen.

A fused kernel never makes the attention weights, so attention that is listened to takes the plain kernel instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from transduce.errors import SettingsError, suggestion

HOOK_POINTS = ("query", "key", "value", "score", "weight", "residual", "read", "write", "slots")
"""What can be listened to; a model need not have all of them."""


class HookPoint(nn.Module):
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


def is_hooked(module: nn.Module) -> bool:
    """Whether anybody listens to a tap inside."""
    return any(isinstance(part, HookPoint) and part.listening for part in module.modules())


@contextmanager
def record(
    model: nn.Module, names: Sequence[str] = ("weight",), inside: str = "", last: int | None = None
) -> Iterator[dict[str, Tensor]]:
    """Collect what passes the taps of these names, by the path of the tap, for as long as the context lasts.

    `inside` is what a path has to contain, and `last` how many of those that do are listened to, counted from the end.
    Paths are those of `named_modules`, layers in order. A tap that is passed again keeps the newest value. Values are
    detached from the graph but not copied. The listeners go when the context ends, however it ends.
    """
    for name in names:
        if name not in HOOK_POINTS:
            raise SettingsError(f"there is no tap '{name}'{suggestion(name, HOOK_POINTS)}")
    heard: dict[str, Tensor] = {}
    listeners = []

    def listen(path: str, tap: HookPoint) -> None:
        def keep(_: nn.Module, __: tuple[Tensor, ...], value: Tensor) -> None:
            heard[path] = value.detach()

        listeners.append(tap.register_forward_hook(keep))

    try:
        taps = [(path, module) for path, module in model.named_modules() if isinstance(module, HookPoint)]
        wanted = [(path, tap) for path, tap in taps if path.rpartition(".")[2] in names and inside in path]
        for path, tap in wanted if last is None else wanted[-last:]:
            listen(path, tap)
        yield heard
    finally:
        for listener in listeners:
            listener.remove()
