"""Which engine answers: PyTorch for everything, CTranslate2 for what it does as our own search does."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from transduce.inference.alignment import AttentionWeights, cross_attention_all
from transduce.inference.ctranslate2.engine import CTranslate2Engine, refusal_of
from transduce.inference.ctranslate2.export import Quantization, is_installed, map_refusal, refuse_unless, write_files
from transduce.inference.ctranslate2.spec import POSITIONS, cannot_translate, library
from transduce.inference.pace import Pace, usual
from transduce.inference.padding import Tokens
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder
from transduce.text.shortlist import Shortlist

Choice = Literal["auto", "torch", "ctranslate2"]


class Searcher:
    """Answers requests for one model. Several threads may ask at a time; PyTorch answers them one by one."""

    def __init__(self, contents: ModelFolder) -> None:
        self._contents = contents
        self._source, self._target = contents.source_tokenizer.specials, contents.target_tokenizer.specials
        self._torch = TorchEngine(contents.transducer, self._source, self._target)
        self._quantization: Quantization | None = None
        """How CTranslate2 holds the weights, where it was chosen."""
        self._fast: CTranslate2Engine | None = None
        self._shortlist: Shortlist | None = None
        self._unmapped: str | None = None
        """Why CTranslate2 cannot be given the shortlist."""
        self._pace = usual()
        self._exported: Path | None = None
        """Where the model is kept for CTranslate2 while several paces are tried."""
        self._loading, self._searching = threading.Lock(), threading.Lock()
        self.fallen_back: str | None = None
        """Why the engine that was chosen did not answer something; the first reason."""

    def use(self, engine: Choice, quantization: Quantization = "float32") -> None:
        """Choose an engine; `auto` takes CTranslate2 where it is installed and can express the model."""
        self._fast, self._quantization, self.fallen_back = None, None, None
        if engine == "auto" and (not is_installed() or cannot_translate(self._contents.model) is not None):
            return
        if engine != "torch":
            refuse_unless(cannot_translate, self._contents.model)
            self._quantization = quantization

    def use_shortlist(self, shortlist: Shortlist | None) -> None:
        """Search among the candidates of each source only; None for all tokens again."""
        self._fast, self._shortlist, self.fallen_back = None, shortlist, None
        tokenizers = self._contents.source_tokenizer, self._contents.target_tokenizer
        self._unmapped = None if shortlist is None else map_refusal(*tokenizers)

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        answers: list[list[Hypothesis] | None] = [None] * len(requests)
        if self._quantization is not None:
            reasons = [self._unmapped or refusal_of(request, POSITIONS) for request in requests]
            self.fallen_back = self.fallen_back or next((reason for reason in reasons if reason is not None), None)
            mine = [place for place, reason in enumerate(reasons) if reason is None]
            if mine:
                found = self._engine().translate([requests[place] for place in mine])
                for place, answer in zip(mine, found, strict=True):
                    answers[place] = answer
        with self.alone():
            rest = [self._listed(one) for one, found in zip(requests, answers, strict=True) if found is None]
            left = iter(self._torch.translate(rest))
        return [next(left) if answer is None else answer for answer in answers]

    def stream(self, request: Request) -> Iterator[tuple[list[int], bool]]:
        """Yield the tokens of a request's best answer that are certain so far, and whether they are all; by PyTorch.

        Others may search between two steps: whoever reads this may take for ever.
        """
        steps = self._torch.stream(self._listed(request))
        while True:
            with self.alone():
                step = next(steps, None)
            if step is None:
                return
            yield step

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let nobody else go through the model: who listens hears all that passes, whoever asked for it."""
        with self._searching:
            yield

    @property
    def attends(self) -> bool:
        """Whether the model has attention to its source, so that words can be aligned."""
        return self._contents.transducer.attends

    def looked_at(self, sources: Tokens, targets: Tokens) -> list[AttentionWeights | None]:
        """How much each target token looked at each source token; None for a pair too long to read at once."""
        with self.alone():
            return cross_attention_all(self._contents.transducer, sources, targets, self._source, self._target)

    def _listed(self, request: Request) -> Request:
        if self._shortlist is None or request.shortlist is not None:
            return request
        return replace(request, shortlist=self._shortlist.of(request.source))

    def is_fast(self, options: SearchOptions) -> bool:
        """Whether CTranslate2 answers what is asked with such options, but for odd ones."""
        if self._quantization is None or self._unmapped is not None:
            return False
        return refusal_of(Request(0, (), options), POSITIONS) is None

    def set_pace(self, pace: Pace) -> None:
        """Say how CTranslate2 shares out the machine; between two questions only."""
        if self._fast is not None and (pace.workers, pace.threads) == (self._pace.workers, self._pace.threads):
            self._fast.pace = pace
        else:
            self._fast = None
        self._pace = pace

    def load(self, fast: bool) -> None:
        """Do now what the first question would wait for."""
        if fast:
            self._engine()

    @contextlib.contextmanager
    def exported(self) -> Iterator[None]:
        """Export the model once for all that is done inside: for whoever tries several paces."""
        with tempfile.TemporaryDirectory() as folder:
            self._exported = Path(folder)
            try:
                write_files(self._contents, self._exported, self._quantization or "float32", self._shortlist)
                yield
            finally:
                self._exported = None

    def _engine(self) -> CTranslate2Engine:
        """CTranslate2 with this model, exported when it is first asked."""
        with self._loading:
            if self._fast is None and self._exported is None:
                with self.exported():
                    self._fast = self._load()
            elif self._fast is None:
                self._fast = self._load()
            return self._fast

    def _load(self) -> CTranslate2Engine:
        contents = self._contents
        vocabularies = (contents.source_tokenizer.vocabulary, contents.target_tokenizer.vocabulary)
        limit = contents.transducer.max_target
        listed = self._shortlist is not None
        return CTranslate2Engine(library(), str(self._exported), vocabularies, self._target, limit, self._pace, listed)
