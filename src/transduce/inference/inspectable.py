"""Methods that look into a model, common to translators and generators.

Each method decodes one text, repeats it by teacher forcing on a twin of the model, and returns a frozen value with
`to_json` and a picture. The model that is in use is never hooked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from transduce.errors import SettingsError
from transduce.inference.ensemble import Ensemble
from transduce.inference.intervention import compare
from transduce.inference.subject import Subject
from transduce.inspection.attribution import Attribution, AttributionMethod, attribute
from transduce.inspection.component import WITHOUT_HEADS
from transduce.inspection.head_role import HeadSummary, SampledMaps, classify_heads
from transduce.inspection.intervention import Ablation, Intervention, LayerName, hide_source
from transduce.inspection.lens import LogitLens, logit_lens
from transduce.inspection.maps import Kind
from transduce.inspection.neuron_view import NeuronView, neuron_view
from transduce.inspection.replay import ForcedDecoding, decoding_steps, replay
from transduce.models.interface import AnyTransducer
from transduce.nn.hook import replace, twin
from transduce.text.tokenizer import AnyTokenizer


class Inspectable(ABC):
    """What can be inspected: a model with its tokenizers."""

    model: AnyTransducer

    @abstractmethod
    def _exclusive(self) -> AbstractContextManager[None]:
        """Keep other threads out of the model while it is copied."""

    @property
    @abstractmethod
    def _written(self) -> AnyTokenizer:
        """The tokenizer of what is written."""

    @abstractmethod
    def prepare(self, text: str, **options: Any) -> Subject:
        """Prepare a text for a search: its tokens, what it must begin with, and the search options."""

    @abstractmethod
    def decode(self, text: str, **options: Any) -> ForcedDecoding:
        """Decode a text with the model in use, and return what is replayed."""

    def _forced(self, text: str | ForcedDecoding, **options: Any) -> ForcedDecoding:
        """Decode a text, unless it was decoded already."""
        return text if isinstance(text, ForcedDecoding) else self.decode(text, **options)

    @abstractmethod
    def _sampled(self, text: str) -> Iterator[SampledMaps]:
        """Yield the attention maps of one text, kind by kind."""

    def logit_lens(self, text: str | ForcedDecoding, top: int = 5, **options: Any) -> LogitLens:
        """Return what each decoder layer would predict at each step: the output layer applied to its residual.

        It has the rank and probability of the produced token, the `top` likeliest tokens of every layer, and the norms
        along the residual stream. Options are those of `attention`; instead of a text, `decode` of it can be given.
        """
        return logit_lens(self._twin(), self._forced(text, **options), top, self._written.pieces)

    def attribute(
        self,
        text: str | ForcedDecoding,
        position: int = -1,
        instead_of: str | int | None = None,
        *,
        token: str | int | None = None,
        method: AttributionMethod = "gradient_x_input",
        **options: Any,
    ) -> Attribution:
        """Return what the token at a position depends on: by source token, and by token of the prefix.

        `position` counts the rows of the decoder's attention map from 0; -1 is the last. With `instead_of`, a token
        or its text, the question is why the token was chosen and not that one (contrastive attribution). `token` is
        another token than the one that was produced. `method` is gradient_x_input or value_zeroing.
        """
        forced = self._forced(text, **options)
        changed = self._twin()
        step = forced.step(position)
        chosen = self._chosen(changed, forced, step) if token is None else self._token(token)
        other = None if instead_of is None else self._token(instead_of)
        objective, source, prefix = attribute(changed, forced, step, chosen, other, method)
        pieces = self._written.pieces([chosen, *([] if other is None else [other])])
        return Attribution(
            method=method,
            token=pieces[0],
            instead_of=None if other is None else pieces[1],
            objective=objective,
            source=tuple(source),
            prefix=tuple(prefix),
            source_pieces=forced.source_pieces,
            prefix_pieces=forced.read_pieces[: step + 1],
        )

    def neuron_view(
        self,
        text: str | ForcedDecoding,
        kind: Kind | None = None,
        layer: int = 1,
        head: int = 1,
        row: int = -1,
        **options: Any,
    ) -> NeuronView:
        """Return the arithmetic of one head at one query: q, k, their product, scores and softmax.

        `kind`, `layer`, `head` and `row` are those of the attention map; layers and heads count from 1, rows from 0.
        """
        kind = kind or ("cross" if self.model.has_source else "causal")
        return neuron_view(self._twin(), self._forced(text, **options), kind, layer, head, row)

    def head_summary(self, texts: Iterable[str]) -> HeadSummary:
        """Return what every head attends to on some texts: shares of attention by role, entropy, and a role.

        A head has a role only if at least half of its attention, and twice that of uniform attention, has it.
        """
        sample = [texts] if isinstance(texts, str) else list(texts)
        if not sample:
            raise SettingsError("the sample of texts is empty; give some texts that the model can read")
        heads = classify_heads(maps for text in sample for maps in self._sampled(text))
        if not heads:
            raise SettingsError(WITHOUT_HEADS)
        return HeadSummary(tuple(heads), len(sample))

    def ablate(
        self,
        text: str,
        *,
        heads: Iterable[tuple[str, int, int]] = (),
        attention: Iterable[LayerName] = (),
        feed_forward: Iterable[LayerName] = (),
        words: Iterable[int] = (),
        tokens: Iterable[int] = (),
        **options: Any,
    ) -> Intervention:
        """Switch off parts of the model and compare what it writes, and its probability, before and after.

        `heads` are (kind, layer, head), `attention` are (kind, layer) and `feed_forward` (stack, layer), from 1; their
        output becomes zero. Source `words` and `tokens`, by number from 0, are masked: nothing attends to them.
        Further options are those of the search.
        """
        subject = self.prepare(text, **options)
        if not self.model.has_source and (words or tokens):
            raise SettingsError(
                "a language model has no source whose words could be masked; leave out words and tokens"
            )
        hidden = subject.positions(words, tokens)
        ablation = Ablation(tuple(heads), tuple(attention), tuple(feed_forward), hidden)
        if not ablation:
            raise SettingsError("nothing to switch off; give heads, attention, feed_forward, words or tokens")
        changed = self._twin()
        hooks = ablation.hooks(changed)
        changes = ablation.describe(subject.source.pieces([*subject.request.source, subject.source.end]))
        if hidden:
            hide_source(changed, hidden)
        with replace(changed, hooks):
            return compare(subject, self._twin(), changed, changes)

    def _twin(self, share_packed: bool = False) -> AnyTransducer:
        """Return a twin of the model in evaluation mode; with its packed weights, it computes the same to the bit."""
        check_single(self.model)
        with self._exclusive():
            return twin(self.model, share_packed).eval()

    def _chosen(self, model: AnyTransducer, forced: ForcedDecoding, step: int) -> int:
        """Return the token that was produced at a step; after the last token of a prompt, the likeliest."""
        if step < len(forced.produced_tokens):
            return forced.produced_tokens[step]
        hidden_TD = replay(model, forced.source_tokens, forced.read_tokens)
        (last,) = decoding_steps(model, hidden_TD[step : step + 1], (), 1, self._written.pieces)
        return last.top[0].token

    def _token(self, given: str | int) -> int:
        """Return a token by its number, its text or its piece; of a text of several tokens, the first."""
        tokenizer = self._written
        if isinstance(given, int):
            if not 0 <= given < tokenizer.size:
                raise SettingsError(f"no token {given}; the vocabulary has tokens 0 to {tokenizer.size - 1}")
            return given
        encoded = tokenizer.encode(given)
        if len(encoded) != 1 or tokenizer.count_unknown(encoded):
            pieces = tokenizer.pieces(range(tokenizer.size))
            if given in pieces:
                return pieces.index(given)
        if not encoded or tokenizer.count_unknown(encoded[:1]):
            raise SettingsError(f"'{given}' is not in the vocabulary; give another token")
        return encoded[0]


def check_single(model: AnyTransducer) -> None:
    """Raise an error for an ensemble."""
    if isinstance(model, Ensemble):
        raise SettingsError("an ensemble has the attention of several models; inspect one of them at a time")
