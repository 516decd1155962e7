"""Activation patching (Vig et al. 2020): a text is translated with some activations of another text.

Both sources are encoded side by side, and every step of decoding reads the same target tokens for both. Where the patch
applies, the activations of the first row are replaced by those of the second. So a patch in the decoder takes what the
decoder would compute for the other source after the same target tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from transduce.errors import SettingsError
from transduce.inspection.component import HeadName, all_heads, check_head
from transduce.models.interface import AnyTransducer, Memory, State, Transducer
from transduce.nn.hook import hook_points
from transduce.nn.hook import replace as replace_activations

Where = str | tuple[str, int] | tuple[str, int, int]
"""memory (the encoder's output), (stack, layer) for the residual of a layer, or (kind, layer, head)."""


@dataclass(frozen=True)
class Patch:
    """Which activations are replaced."""

    where: Where
    positions: tuple[tuple[int, int], ...] | None = None
    """Pairs of positions, in the text and in the other one; None for all."""

    @property
    def is_of_source(self) -> bool:
        """Whether the activations belong to source tokens; otherwise to steps of the target."""
        return self.where == "memory" or self.where[0] == "encoder"

    def describe(self) -> str:
        """Return the change in words."""
        if isinstance(self.where, str):
            place = "encoder output"
        elif len(self.where) == 2:
            place = f"{self.where[0]} layer {self.where[1]} residual"
        else:
            place = str(HeadName(*self.where))
        at = "everywhere" if self.positions is None else f"at {', '.join(str(ours) for ours, _ in self.positions)}"
        return f"{place} {at} from the other text"

    def path(self, model: AnyTransducer) -> tuple[str | None, int | None]:
        """Return the path of the hook point, None for the encoder's output; and the index of a head, if it is one."""
        where = self.where
        if where == "memory":
            return None, None
        if len(where) == 3 and not isinstance(where, str):
            path, head = check_head(model, where)
            return f"{path}.head", head
        if isinstance(where, str) or len(where) != 2:
            raise SettingsError(
                f"cannot patch {where!r}; give 'memory', (stack, layer) or (kind, layer, head), as in ('encoder', 1)"
            )
        stack, layer = where
        paths = [path for path in hook_points(model, ("residual",)) if path.startswith(f"{stack}.")]
        if not 1 <= layer <= len(paths):
            raise SettingsError(
                f"no layer {layer} in a stack named '{stack}' (it has {len(paths)}); name a layer of the "
                "encoder or decoder, of a model that has them, such as a transformer"
            )
        return paths[layer - 1], None

    def apply(self, value: Tensor, head: int | None) -> Tensor:
        """Replace activations of the first half of a batch by those of the second.  (2B … N …) -> the same.

        Positions are on axis 1 of a residual and on axis 2 of heads; those past the end are ignored.
        """
        half = len(value) // 2
        rows = value if head is None else value[:, head]
        ours, theirs = rows[:half], rows[half:]
        if self.positions is None:
            patched = theirs
        else:
            inside = [pair for pair in self.positions if max(pair) < rows.shape[1]]
            patched = ours.clone()
            patched[:, [place for place, _ in inside]] = theirs[:, [place for _, place in inside]]
        changed = value.clone()
        (changed if head is None else changed[:, head])[:half] = patched
        return changed


@dataclass(frozen=True)
class PairMemory(Memory):
    """The memory of the text, and that of both texts."""

    both: Memory
    """The text's rows, then the other's."""


@dataclass
class PairState(State):
    """All tokens so far; nothing is cached."""

    memory: PairMemory
    tokens: Tensor
    """(R T)"""
    width: int

    @property
    def num_rows(self) -> int:
        return len(self.tokens)

    def select(self, rows: Tensor) -> PairState:
        return replace(self, tokens=self.tokens[rows])

    def join(self, other: PairState) -> PairState:
        raise NotImplementedError("a patched model translates one text at a time")


class PatchedModel(Transducer[PairMemory, PairState]):
    """A twin of a model that translates one text with activations of another; use it inside `patched`."""

    def __init__(self, model: AnyTransducer, other: Sequence[int], pad: int, patch: Patch) -> None:
        """`other` are the source tokens of the other text, its end token included."""
        super().__init__()
        self.whole, self.output, self.sizes = model, model.output, model.sizes
        self.max_source, self.max_target = model.max_source, model.max_target
        self.other, self.pad, self.patch = tuple(other), pad, patch

    def encode(self, source: Tensor, allowed: Tensor) -> PairMemory:
        length = max(source.shape[1], len(self.other))
        both_2S = source.new_full((2 * len(source), length), self.pad)
        allowed_2S = allowed.new_zeros(both_2S.shape)
        both_2S[: len(source), : source.shape[1]], allowed_2S[: len(source), : source.shape[1]] = source, allowed
        both_2S[len(source) :, : len(self.other)] = torch.tensor(self.other, device=source.device)
        allowed_2S[len(source) :, : len(self.other)] = True
        memory: Memory = self.whole.encode(both_2S, allowed_2S)
        if self.patch.where == "memory":
            states, masks = self.patch.apply(memory.states, None), memory.allowed
            if self.patch.positions is None:
                masks = self.patch.apply(masks, None)
            memory = replace(memory, states=states, allowed=masks)
        own = _rows(memory, torch.arange(len(source), device=source.device))
        return PairMemory(own.states, own.allowed, memory)

    def forward(self, target: Tensor, memory: PairMemory) -> Tensor:
        hidden: Tensor = self.whole(torch.cat([target, target]), memory.both)
        return hidden[: len(target)]

    def start(self, memory: PairMemory, width: int = 1) -> PairState:
        assert len(memory.states) == 1, "a patched model translates one text at a time"
        tokens = torch.empty(width, 0, dtype=torch.long, device=memory.states.device)
        return PairState(memory, tokens, width)

    def extend(self, tokens: Tensor, lengths: Tensor, state: PairState) -> tuple[Tensor, PairState]:
        count = int(lengths[0])
        read_RT = torch.cat([state.tokens, tokens[:, :count]], dim=1)
        row_R = torch.zeros(len(read_RT), dtype=torch.long, device=read_RT.device)
        memory = replace(state.memory, both=_rows(state.memory.both, torch.cat([row_R, row_R + 1])))
        hidden_RTD = self(read_RT, memory)
        return hidden_RTD[:, read_RT.shape[1] - count :], replace(state, tokens=read_RT)

    def step(self, tokens: Tensor, state: PairState) -> tuple[Tensor, PairState]:
        hidden_R1D, state = self.extend(tokens[:, None], torch.ones_like(tokens), state)
        return hidden_R1D[:, 0], state


@contextmanager
def patched(model: AnyTransducer, other: Sequence[int], pad: int, patch: Patch) -> Iterator[PatchedModel]:
    """Patch a twin inside the context; `other` are the source tokens of the other text, its end token included."""
    if not all_heads(model):
        raise SettingsError("activations can be patched in a model with multi-head attention; use a transformer")
    path, head = patch.path(model)
    hooks = {} if path is None else {path: lambda value: patch.apply(value, head)}
    with replace_activations(model, hooks):
        yield PatchedModel(model, other, pad, patch).eval()


def _rows(memory: Memory, rows: Tensor) -> Memory:
    """Return these rows of a memory, whatever it holds."""
    parts: dict[str, Any] = {field.name: getattr(memory, field.name)[rows] for field in fields(memory)}
    return replace(memory, **parts)
