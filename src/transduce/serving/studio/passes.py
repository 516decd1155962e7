"""Recorded passes: what the server keeps of a translation so that views of it can be computed later.

They are in the memory of the HTTP process, bounded by bytes; those used least recently leave first. A pass has all that
an engine needs to repeat it, so that it does not matter which process of a model answers.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from transduce.config import Table
from transduce.serving.http import RequestError
from transduce.serving.job import InspectJob, RecordJob, View

OVERHEAD = 4096
"""Bytes that a pass takes besides its texts and arrays."""


@dataclass(frozen=True)
class ShareArray:
    """An array of shares: 16-bit integers in steps of 1/65520, little-endian."""

    shape: tuple[int, ...]
    data: bytes


@dataclass
class RecordedPass:
    """One pass and what was fetched of it."""

    id: str
    model: str
    """Name of the model."""
    job: RecordJob
    """How to repeat it."""
    source_tokens: list[int]
    target_tokens: list[int]
    """The first token that the decoder read, and all that were produced."""
    body: bytes
    """The pass as JSON, as the client got it."""
    layers: dict[tuple[str, int], ShareArray] = field(default_factory=dict)
    """Attention that was fetched, by kind and layer."""

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        return OVERHEAD + 2 * len(self.body) + sum(len(array.data) for array in self.layers.values())

    def inspect(self, view: View, parameters: Table) -> InspectJob:
        """The job that computes a view."""
        return InspectJob(
            view=view,
            recorded=self.job,
            source_tokens=self.source_tokens,
            target_tokens=self.target_tokens,
            parameters=parameters,
        )


class PassCache:
    """Passes by id. Ids are random: who does not know one cannot read another client's text."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._passes: OrderedDict[str, RecordedPass] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self.bytes = 0
        """Bytes of all passes."""

    def __len__(self) -> int:
        return len(self._passes)

    def add(self, model: str, job: RecordJob, recorded: Table) -> RecordedPass:
        """Keep a pass of an engine's result, and return it with its id."""
        id = secrets.token_urlsafe(12)
        seed = recorded.get("seed")
        if seed is not None:
            job = job.but(search={**job.search, "seed": seed})
        is_prompt = recorded["subject"] == "prompt"
        target = recorded["read_tokens"] if is_prompt else [*recorded["read_tokens"][:1], *recorded["produced_tokens"]]
        body = json.dumps({"id": id, **recorded}, ensure_ascii=False, allow_nan=False).encode()
        kept = RecordedPass(id, model, job, recorded["source_tokens"], target, body)
        self._passes[id] = kept
        self.measure(kept)
        return kept

    def find(self, id: str) -> RecordedPass:
        """Return a pass and keep it longer; raises RequestError (404)."""
        found = self._passes.get(id)
        if found is None:
            raise RequestError(404, "this recorded pass is gone; translate again", "id")
        self._passes.move_to_end(id)
        return found

    def measure(self, changed: RecordedPass) -> None:
        """Count a pass anew after something was added to it; drop others, and its arrays, if there are too many."""
        if changed.id not in self._passes:
            return
        self.bytes += changed.size - self._sizes.get(changed.id, 0)
        self._sizes[changed.id] = changed.size
        while self.bytes > self._max_bytes and self._passes:
            id, oldest = next(iter(self._passes.items()))
            if oldest is changed and changed.layers:
                changed.layers.clear()
                self.measure(changed)
                return
            del self._passes[id]
            self.bytes -= self._sizes.pop(id)
