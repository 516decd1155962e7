"""The torch engine: any number of requests in, their hypotheses out, in batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transduce.decoding.options import Hypothesis, Request
from transduce.decoding.search import Search
from transduce.models.interface import AnyTransducer
from transduce.text.specials import Specials


class TorchEngine:
    """Search on the model itself: the readable reference that other engines are held against."""

    def __init__(self, model: AnyTransducer, source: Specials, target: Specials, batch_tokens: int = 4096) -> None:
        self.model, self.source, self.target = model, source, target
        self.batch_tokens = batch_tokens
        """Source tokens, padding and openings included, that one batch may hold."""

    def translate(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the hypotheses of each request, in the order of the requests."""
        answers: list[list[Hypothesis]] = [[] for _ in requests]
        places = {request.id: place for place, request in enumerate(requests)}
        assert len(places) == len(requests), "every request needs an id of its own"
        with self._as_used():
            for batch in self._batches(requests):
                search = Search(self.model, self.source, self.target)
                search.admit(batch)
                while search.active:
                    for result in search.advance():
                        answers[places[result.id]] = result.hypotheses
        return answers

    def stream(self, request: Request) -> Iterator[tuple[list[int], bool]]:
        """Yield the tokens of the best answer that are certain so far, and whether they are all."""
        search = Search(self.model, self.source, self.target)
        with self._as_used():
            search.admit([request])
        while search.active:
            with self._as_used():
                results = search.advance()
                certain = [result.hypotheses[0].tokens for result in results] or list(search.agreed().values())
            yield certain[0], bool(results)

    @contextmanager
    def _as_used(self) -> Iterator[None]:
        """Without dropout; a model may be asked in the middle of training."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def _batches(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Cut the requests, longest first, into batches that fit; a request too large for any stands alone."""
        batch: list[Request] = []
        longest = 0
        for request in sorted(requests, key=lambda request: -len(request.source)):
            length = (len(request.source) + 1) * request.options.width
            if batch and max(longest, length) * (len(batch) + 1) > self.batch_tokens:
                yield batch
                batch, longest = [], 0
            batch.append(request)
            longest = max(longest, length)
        if batch:
            yield batch
