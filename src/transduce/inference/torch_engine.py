"""The PyTorch engine: any number of requests in, their hypotheses out, in batches of similar length."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from transduce.inference.search.options import Hypothesis, Request, StreamStep
from transduce.inference.search.search import Search
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import eval_mode
from transduce.text.tokenizer.special import Specials

MAX_GROWTH = 8
"""How many times its first tokens a batch of a language model may hold when it has written everything."""


class TorchEngine:
    """Search on the model itself: the readable reference that other engines are compared with.

    As many batches are searched in parallel as PyTorch has threads, with one thread each: more threads slow down small
    matrix products. Callers in several threads are served one after the other.
    """

    def __init__(self, model: AnyTransducer, source: Specials, target: Specials, tokens_per_batch: int = 4096) -> None:
        self.model, self.source, self.target = model, source, target
        self.tokens_per_batch = tokens_per_batch
        """Tokens that one batch may read before the first is written, counted for each beam."""
        self._lock = threading.Lock()

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        # A coverage penalty copies the model's modules, which no other thread may be running meanwhile.
        needs_twin = any(request.options.coverage_penalty for request in requests)
        on_cpu = self.model.output.weight.device.type == "cpu"
        threads = torch.get_num_threads() if on_cpu and not needs_twin else 1
        batches = list(self._batches(requests, threads))
        with self.exclusive(), eval_mode(self.model):
            if min(threads, len(batches)) <= 1:
                found = [self._search(batch) for batch in batches]
            else:
                with (
                    one_thread_each(),
                    ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
                ):
                    found = list(pool.map(self._search, batches))
        hypotheses = {id: several for batch in found for id, several in batch.items()}
        assert len(hypotheses) == len(requests), "every request needs an id of its own"
        return [hypotheses[request.id] for request in requests]

    def _search(self, batch: Sequence[Request]) -> dict[int, list[Hypothesis]]:
        search = Search(self.model, self.source, self.target)
        search.admit(batch)
        found: dict[int, list[Hypothesis]] = {}
        while search.active:
            found |= {result.id: result.checked() for result in search.advance()}
        return found

    def stream(self, request: Request) -> Iterator[StreamStep]:
        """Yield the tokens of the best hypothesis that can no longer change, at last with the hypothesis itself.

        Other threads may search between two steps, for the consumer may be slow.
        """
        search = Search(self.model, self.source, self.target)
        with self.exclusive(), eval_mode(self.model):
            search.admit([request])
        while search.active:
            with self.exclusive(), eval_mode(self.model):
                results = search.advance()
                best = results[0].checked()[0] if results else None
                tokens = search.agreed()[request.id] if best is None else best.tokens
            yield tokens, best

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other threads out of the model while it is copied or inspected."""
        with self._lock:
            yield

    def _batches(self, requests: Sequence[Request], threads: int) -> Iterator[list[Request]]:
        """Divide the requests, longest first, into batches of about equal cost, the same number for each thread.

        A request too large for any batch is a batch of its own.
        """
        ordered = sorted(requests, key=lambda request: -_tokens_read(request))
        costs = [_cost(request) for request in ordered]
        needed = -(-sum(costs) // self.tokens_per_batch)
        count, total = -(-max(1, needed) // threads) * threads, sum(costs)
        batch: list[Request] = []
        spent, closed, held = 0, 0, 0
        for request, cost in zip(ordered, costs, strict=True):
            if batch and (spent * count >= total * (closed + 1) or held + cost > self.tokens_per_batch):
                yield batch
                batch, held, closed = [], 0, closed + 1
            batch.append(request)
            spent, held = spent + cost, held + cost
        if batch:
            yield batch


def _cost(request: Request) -> int:
    """The tokens of a batch that a request takes, counted for each beam.

    A language model may write a long text after a short prompt and caches all of it, so the maximum length counts too:
    no batch ends with more than `MAX_GROWTH` times its tokens.
    """
    read = _tokens_read(request) + 1
    kept = 0 if request.first is None else (1 + request.max_total_length) // MAX_GROWTH
    return max(read, kept) * request.options.width


def _tokens_read(request: Request) -> int:
    """Number of tokens that are read before the first is written."""
    return len(request.source) + len(request.prefix)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Give every operation one thread while several run in parallel."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
