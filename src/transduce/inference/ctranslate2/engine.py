"""The CTranslate2 engine, for requests for which it finds the same hypotheses as our own search."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.inference.ctranslate2.export import POSITIONS, Quantization, library, map_rejection, write_files
from transduce.inference.search.active_request import ActiveRequest
from transduce.inference.search.options import Hypothesis, Request, SearchOptions, StreamStep
from transduce.inference.search.penalty import power
from transduce.model_folder import ModelFolder
from transduce.storage.filesystem import temporary_storage_errors
from transduce.text.shortlist import Shortlist

BATCH_SIZE = 32
"""Sentences that CTranslate2 puts into one batch, after sorting them by length; with a beam of 5, 64 took longer."""


@dataclass(frozen=True)
class Parallelism:
    """Workers that translate in parallel, threads of each, and sentences that a worker takes at a time.

    It affects speed, not results.
    """

    workers: int
    threads: int = 1
    batch_size: int = BATCH_SIZE


def available_cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_parallelism() -> Parallelism:
    """One worker per core with one thread: more threads slow down small matrix products."""
    return Parallelism(available_cores())


def request_rejection(request: Request) -> str | None:
    """Why a request is not for CTranslate2, which would search differently or not at all; None if it is."""
    options = request.options
    if request.max_total_length >= POSITIONS:
        return f"CTranslate2 was given {POSITIONS:,} positions"
    if options.method == "sample":
        return "CTranslate2 does not draw repeatable samples"
    if options.method == "beam" and options.beam_size > 1:
        if options.length_normalization != "power" and options.length_penalty:
            return f"CTranslate2 has no length normalization '{options.length_normalization}'"
        if options.stop_rule != "beam_finished":
            return f"CTranslate2 has no stop rule '{options.stop_rule}'"
    if options.presence_penalty or options.frequency_penalty:
        return "CTranslate2 has no presence or frequency penalty"
    if options.beam_groups > 1 or options.coverage_penalty:
        return "CTranslate2 has no diverse beam search, and a different coverage penalty"
    if request.required or request.should_stop is not None:
        return "CTranslate2 has no lexical constraints and no stop strings"
    if request.trace:
        return "CTranslate2 does not trace its search"
    if request.shortlist is not None:
        return "CTranslate2 reads shortlists from a file only"
    return "CTranslate2 scores prefixes differently" if request.prefix else None


def nearest_options(options: SearchOptions, given: Collection[str]) -> SearchOptions:
    """Return options with CTranslate2's own beam search, except for those that the user has given."""
    own = {"length_normalization": "power", "stop_rule": "beam_finished"}
    return options.but(**{name: value for name, value in own.items() if name not in given})


class CTranslate2Engine:
    """Translates with CTranslate2, which sorts requests by length; several threads may call it at a time.

    The model is exported and loaded on first use. A shortlist becomes CTranslate2's vocabulary map, which takes the
    union of the lists of a batch.
    """

    def __init__(
        self,
        contents: ModelFolder,
        quantization: Quantization = "float32",
        shortlist: Shortlist | None = None,
        parallelism: Parallelism | None = None,
    ) -> None:
        self._contents, self._quantization, self._shortlist = contents, quantization, shortlist
        self._source, self._pieces = contents.source_tokenizer.vocabulary, contents.target_tokenizer.vocabulary
        self._target = {piece: token for token, piece in enumerate(self._pieces)}
        self._specials, self._limit = contents.target_tokenizer.specials, contents.transducer.max_target
        tokenizers = contents.source_tokenizer, contents.target_tokenizer
        self._unmapped = None if shortlist is None else map_rejection(*tokenizers)
        """Why the shortlist cannot be exported."""
        self.parallelism = parallelism or default_parallelism()
        self._exported: Path | None = None
        self._translator: Any = None
        self._loading = threading.Lock()

    def rejects(self, request: Request) -> str | None:
        """Why it does not take a request; None if it does."""
        return self._unmapped or request_rejection(request)

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests.

        The list is empty where one has a padding or start token, which our search never writes: the model is hardly
        trained. A hypothesis that was cut off at the maximum length ranks after all that ended, as in our search.
        """
        found: dict[int, list[Hypothesis]] = {}
        for options, group in _group_alike(requests):
            active = [ActiveRequest.of(request, self._specials, self._limit) for request in group]
            for one in self._search(active, options):
                found[one.request.id] = one.result().hypotheses if self._is_plain(one) else []
        return [found[request.id] for request in requests]

    def stream(self, request: Request) -> Iterator[StreamStep]:
        """Yield the tokens of the best hypothesis, all at once: CTranslate2's beams are not seen before they end."""
        ((best, *_),) = self.translate([request])
        yield best.tokens, best

    def set_parallelism(self, parallelism: Parallelism) -> None:
        """Change how the machine is divided; not while it translates."""
        before, self.parallelism = self.parallelism, parallelism
        if (parallelism.workers, parallelism.threads) != (before.workers, before.threads):
            self._translator = None

    @contextlib.contextmanager
    def exported(self) -> Iterator[None]:
        """Keep the export while it is loaded several times, with different parallelism."""
        with contextlib.ExitStack() as stack:
            with temporary_storage_errors():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                write_files(self._contents, folder, self._quantization, self._shortlist)
            self._exported = folder
            try:
                yield
            finally:
                self._exported = None

    def load(self) -> Any:
        """Return CTranslate2's translator, exported and loaded at the first call."""
        with self._loading:
            if self._translator is None:
                with contextlib.nullcontext() if self._exported else self.exported():
                    self._translator = library().Translator(str(self._exported), **self._place())
            return self._translator

    def _place(self) -> dict[str, Any]:
        """Where it translates: on the GPU of the model, one batch at a time, or on the CPU, as divided."""
        device = self._contents.transducer.device
        if device.type == "cuda":
            return {"device": "cuda", "device_index": device.index or 0}
        return {
            "device": "cpu",
            "inter_threads": self.parallelism.workers,
            "intra_threads": self.parallelism.threads,
        }

    def _search(self, active: Sequence[ActiveRequest], options: SearchOptions) -> Iterator[ActiveRequest]:
        """Search for the hypotheses of requests with the same options.

        CTranslate2 has one maximum length for a batch, the largest. A request with a smaller one that reaches it is
        searched once more with its own, so that it gets what it would get alone.
        """
        longest = max(one.max_length for one in active)
        again: dict[int, list[ActiveRequest]] = {}
        for one, hypotheses in zip(active, self._translate_batch(active, options, longest), strict=True):
            if one.max_length < longest and any(len(tokens) >= one.max_length for tokens, _ in hypotheses):
                again.setdefault(one.max_length, []).append(one)
                continue
            for tokens, score in hypotheses:
                ended = len(tokens) < longest
                length = power(len(tokens) + ended, options.length_penalty) if options.width > 1 else 1.0
                one.finish(0, tokens, score * length, len(tokens) + ended, ended)
            yield one
        for several in again.values():
            yield from self._search(several, options)

    def _translate_batch(
        self, active: Sequence[ActiveRequest], options: SearchOptions, longest: int
    ) -> Iterator[list[tuple[list[int], float]]]:
        """Yield the tokens and scores of each request's hypotheses, in CTranslate2's order."""
        forbidden = [[self._pieces[token] for token in phrase] for phrase in active[0].request.forbidden if phrase]
        results = self.load().translate_batch(
            [[self._source[token] for token in one.request.source] for one in active],
            beam_size=options.width,
            num_hypotheses=options.n_best,
            length_penalty=options.length_penalty if options.width > 1 else 0.0,
            max_decoding_length=longest,
            min_decoding_length=min(options.min_length, longest),
            repetition_penalty=options.repetition_penalty,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
            suppress_sequences=forbidden or None,
            max_input_length=0,
            max_batch_size=self.parallelism.batch_size,
            use_vmap=self._shortlist is not None,
            return_scores=True,
        )
        for result in results:
            tokens = [[self._target[piece] for piece in pieces] for pieces in result.hypotheses]
            yield list(zip(tokens, result.scores, strict=True))

    def _is_plain(self, active: ActiveRequest) -> bool:
        """Whether no hypothesis has a token that our search never writes."""
        framing = {self._specials.pad, self._specials.start}
        return all(framing.isdisjoint(one.tokens) for one in active.hypotheses)


def _group_alike(requests: Sequence[Request]) -> Iterator[tuple[SearchOptions, list[Request]]]:
    """Group requests with the same options and forbidden phrases; their maximum lengths may differ."""
    groups: dict[tuple[SearchOptions, str], list[Request]] = {}
    for request in requests:
        groups.setdefault((request.options, repr(request.forbidden)), []).append(request)
    for group in groups.values():
        yield group[0].options, group
