"""Engines, which turn requests into hypotheses, and the choice between PyTorch and CTranslate2."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Literal, Protocol, get_args

from transduce.errors import SettingsError
from transduce.inference.ctranslate2.engine import CTranslate2Engine, Parallelism, default_parallelism
from transduce.inference.ctranslate2.export import Quantization, check_model, is_installed, translation_rejection
from transduce.inference.search.options import Hypothesis, Request, SearchOptions, StreamStep
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder
from transduce.nn.cpu.packed import Precision
from transduce.text.shortlist import Shortlist

EngineName = Literal["auto", "torch", "ctranslate2"]


class BatchEngine(Protocol):
    """Searches for the hypotheses of requests."""

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests; best first."""


class Engine(BatchEngine, Protocol):
    """Searches for the hypotheses of requests, also while somebody reads them."""

    def stream(self, request: Request) -> Iterator[StreamStep]:
        """Yield the tokens of the best hypothesis that can no longer change, at last with the hypothesis itself."""


class ModelEngine(Engine, Protocol):
    """An engine that searches on the PyTorch model itself."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other threads out of the model while it is copied or inspected."""


class SelectedEngine:
    """The engine that was selected, with PyTorch as the fallback for requests that it rejects.

    Several threads may call it at a time; PyTorch serves them one after the other.
    """

    def __init__(self, contents: ModelFolder) -> None:
        self._contents = contents
        source, target = contents.source_tokenizer.specials, contents.target_tokenizer.specials
        self._torch: ModelEngine = TorchEngine(contents.transducer, source, target)
        self._ctranslate2: CTranslate2Engine | None = None
        self._windowed: BatchEngine | None = None
        """What batches the requests of several threads for CTranslate2, in a server."""
        self._quantization: Quantization = "float32"
        self._precision: Precision = "float32"
        self._counting = threading.Lock()
        self._shortlist: Shortlist | None = None
        self._parallelism = default_parallelism()
        self.fallback_reason: str | None = None
        """Why the selected engine left a request to PyTorch; the first reason."""
        self.fallbacks = 0
        """Number of requests that it left to PyTorch."""

    def use(self, engine: EngineName, quantization: Quantization = "float32") -> None:
        """Select an engine; `auto` takes CTranslate2 if it is installed and supports the model.

        In int8, PyTorch computes the products of large matrices in int8, too; it has no other quantization.
        """
        for given, known in ((engine, get_args(EngineName)), (quantization, get_args(Quantization))):
            if given not in known:
                raise SettingsError(f"unknown engine or quantization {given!r}; choose from {', '.join(known)}")
        if engine == "auto":
            engine = "ctranslate2" if self.supports_ctranslate2 else "torch"
        if engine == "torch" and quantization not in ("float32", "int8"):
            raise SettingsError(f"PyTorch does not translate in {quantization}; choose float32 or int8")
        device = self._contents.transducer.device.type
        if engine == "torch" and quantization == "int8" and device != "cpu":
            raise SettingsError(f"PyTorch translates in int8 on a CPU only, and the model is on {device}; use float32")
        if engine == "ctranslate2":
            check_model(translation_rejection, self._contents.model)
        precision: Precision = "int8" if (engine, quantization) == ("torch", "int8") else "float32"
        if precision != self._precision:
            with self.exclusive():
                self._contents.transducer.freeze(precision)
            self._precision = precision
        self._quantization = quantization
        self._ctranslate2 = self._new_ctranslate2() if engine == "ctranslate2" else None
        self.fallback_reason, self.fallbacks = None, 0

    @property
    def supports_ctranslate2(self) -> bool:
        """Whether CTranslate2 is installed and supports the model."""
        return is_installed() and translation_rejection(self._contents.model) is None

    def use_shortlist(self, shortlist: Shortlist | None) -> None:
        """Search among the shortlist of each source only; None for the whole vocabulary."""
        self._shortlist, self.fallback_reason, self.fallbacks = shortlist, None, 0
        if self._ctranslate2 is not None:
            self._ctranslate2 = self._new_ctranslate2()

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        found: dict[int, list[Hypothesis]] = {}
        if self._ctranslate2 is not None:
            reasons = [self._ctranslate2.rejects(request) for request in requests]
            taken = [request for request, reason in zip(requests, reasons, strict=True) if reason is None]
            engine = self._windowed or self._ctranslate2
            hypotheses = engine.translate(taken) if taken else []
            found = {request.id: several for request, several in zip(taken, hypotheses, strict=True) if several}
            reason = next((reason for reason in reasons if reason), "CTranslate2 wrote a padding or start token")
            self._count_fallbacks(len(requests) - len(found), reason)
        rest = [self._with_shortlist(request) for request in requests if request.id not in found]
        if rest:
            found |= zip([request.id for request in rest], self._torch.translate(rest), strict=True)
        return [found[request.id] for request in requests]

    def stream(self, request: Request) -> Iterator[StreamStep]:
        """Stream with PyTorch."""
        return self._torch.stream(self._with_shortlist(request))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads out of the PyTorch model while it is copied or inspected."""
        with self._torch.exclusive():
            yield

    @property
    def has_ctranslate2(self) -> bool:
        """Whether CTranslate2 was selected; it may still reject a request."""
        return self._ctranslate2 is not None

    def uses_ctranslate2(self, options: SearchOptions) -> bool:
        """Whether CTranslate2 takes ordinary requests with these options."""
        return self._ctranslate2 is not None and self._ctranslate2.rejects(Request(0, (), options)) is None

    def schedule(self, torch: ModelEngine, windowed: Callable[[CTranslate2Engine], BatchEngine]) -> None:
        """Search by a server's schedulers, which batch the requests of several threads; select the engine before."""
        self._torch = torch
        self._windowed = None if self._ctranslate2 is None else windowed(self._ctranslate2)

    def set_parallelism(self, parallelism: Parallelism) -> None:
        """Change how CTranslate2 divides the machine; not while it translates."""
        self._parallelism = parallelism
        if self._ctranslate2 is not None:
            self._ctranslate2.set_parallelism(parallelism)

    def load(self) -> None:
        """Load CTranslate2 now, if it was selected, and not at the first request."""
        if self._ctranslate2 is not None:
            self._ctranslate2.load()

    @contextlib.contextmanager
    def exported(self) -> Iterator[None]:
        """Export the model once while CTranslate2 is loaded with different parallelism."""
        with contextlib.nullcontext() if self._ctranslate2 is None else self._ctranslate2.exported():
            yield

    def _count_fallbacks(self, count: int, reason: str) -> None:
        with self._counting:
            self.fallbacks += count
            if count and self.fallback_reason is None:
                self.fallback_reason = reason

    def _new_ctranslate2(self) -> CTranslate2Engine:
        return CTranslate2Engine(self._contents, self._quantization, self._shortlist, self._parallelism)

    def _with_shortlist(self, request: Request) -> Request:
        if self._shortlist is None or request.shortlist is not None:
            return request
        return replace(request, shortlist=self._shortlist.of(request.source))
