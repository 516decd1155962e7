"""Engines, which turn requests into hypotheses, and the choice between PyTorch and CTranslate2."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Literal, Protocol

from transduce.inference.ctranslate2.engine import CTranslate2Engine, Parallelism, default_parallelism
from transduce.inference.ctranslate2.export import Quantization, check_model, is_installed, translation_rejection
from transduce.inference.search.options import Hypothesis, Request, SearchOptions, StreamStep
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder
from transduce.text.shortlist import Shortlist

EngineName = Literal["auto", "torch", "ctranslate2"]


class Engine(Protocol):
    """Searches for the hypotheses of requests."""

    def rejects(self, request: Request) -> str | None:
        """Why it does not take a request; None if it does."""

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests; best first."""

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
        self._windows: Callable[[CTranslate2Engine], Engine] | None = None
        self._quantization: Quantization = "float32"
        self._shortlist: Shortlist | None = None
        self._parallelism = default_parallelism()
        self.fallback_reason: str | None = None
        """Why the selected engine left a request to PyTorch; the first reason."""

    def use(self, engine: EngineName, quantization: Quantization = "float32") -> None:
        """Select an engine; `auto` takes CTranslate2 if it is installed and supports the model."""
        self._ctranslate2, self._quantization, self.fallback_reason = None, quantization, None
        if engine == "auto" and (not is_installed() or translation_rejection(self._contents.model) is not None):
            return
        if engine != "torch":
            check_model(translation_rejection, self._contents.model)
            self._ctranslate2 = self._new_ctranslate2()

    def use_shortlist(self, shortlist: Shortlist | None) -> None:
        """Search among the shortlist of each source only; None for the whole vocabulary."""
        self._shortlist, self.fallback_reason = shortlist, None
        if self._ctranslate2 is not None:
            self._ctranslate2 = self._new_ctranslate2()

    def rejects(self, request: Request) -> str | None:
        """Nothing: PyTorch takes what the selected engine rejects."""
        return self._torch.rejects(request)

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        found: dict[int, list[Hypothesis]] = {}
        if self._ctranslate2 is not None:
            reasons = [self._ctranslate2.rejects(request) for request in requests]
            self.fallback_reason = self.fallback_reason or next((reason for reason in reasons if reason), None)
            taken = [request for request, reason in zip(requests, reasons, strict=True) if reason is None]
            engine = self._ctranslate2 if self._windows is None else self._windows(self._ctranslate2)
            hypotheses = engine.translate(taken) if taken else []
            found = {request.id: several for request, several in zip(taken, hypotheses, strict=True) if several}
        rest = [self._with_shortlist(request) for request in requests if request.id not in found]
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

    def schedule(self, torch: ModelEngine, windows: Callable[[CTranslate2Engine], Engine]) -> None:
        """Search by a server's schedulers, which batch the requests of several threads."""
        self._torch, self._windows = torch, windows

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

    def _new_ctranslate2(self) -> CTranslate2Engine:
        return CTranslate2Engine(self._contents, self._quantization, self._shortlist, self._parallelism)

    def _with_shortlist(self, request: Request) -> Request:
        if self._shortlist is None or request.shortlist is not None:
            return request
        return replace(request, shortlist=self._shortlist.of(request.source))
