"""Prompt in, continuation out: the folder of a language model as one callable.

generator = transduce.load("runs/author")
generator("Once upon a time")
generator.generate(["ROMEO:", "JULIET:"], temperature=0.7, max_length=300)
generator.attention("Once upon a time").save_html("attention.html")
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from transduce.errors import SettingsError
from transduce.inference.embedding import decoder_states, pooled_vectors, prompt_rows
from transduce.inference.engine import ModelEngine
from transduce.inference.inspectable import Inspectable
from transduce.inference.pretrained import Pretrained, checked_contents
from transduce.inference.scoring import DEFAULT_WINDOW, TextScore, score_text
from transduce.inference.search.options import (
    GENERATION_DEFAULTS,
    Hypothesis,
    Request,
    SearchOptions,
    generation_options,
    override_options,
    saved_options,
)
from transduce.inference.search.penalty import normalize
from transduce.inference.subject import Subject, prefix_tokens
from transduce.inference.torch_engine import TorchEngine
from transduce.inspection.head_role import SampledMaps, sample_maps
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import WITHOUT_ATTENTION, causal_attention_of
from transduce.inspection.replay import Candidate, ForcedDecoding, decoding_steps, replay
from transduce.model_folder import ModelFolder
from transduce.models.interface import LanguageModel
from transduce.nn.cpu.packed import Precision
from transduce.text.argument import checked_text, checked_texts, one_or_several
from transduce.text.constraint import Constraints, TokenConstraints
from transduce.text.corpus import DocumentPart
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import SPELLING
from transduce.text.tokenizer.streaming import StreamedText

EXAMPLE_PROMPTS = (
    "The capital of France is",
    "The capital of France, which I visited after spending three weeks traveling through Europe and reading about its "
    "history, is",
    "def scale(values, factor):\n    return [v * factor for v in",
    "The snack-seeking, scruffy dog ran to the",
)
"""Prompts on which texts about the Transformer show next-token prediction."""


@dataclass(frozen=True)
class Continuation:
    """One continuation of a prompt."""

    text: str
    """The text after the prompt."""
    score: float
    """The log-probability divided by the length penalty; continuations are ranked by it."""
    log_probability: float
    """Of the continuation, with the end token where the model wrote it."""
    tokens: int
    """Number of tokens written."""
    ended: bool
    """Whether the model ended it, or a stop string; False if the maximum length cut it off."""

    def __repr__(self) -> str:
        return f"Continuation({self.text!r}, score={self.score:.4f}, tokens={self.tokens}, ended={self.ended})"


@dataclass
class GenerationCounts:
    """Counts over all prompts so far."""

    prompts: int = 0
    shortened: int = 0
    """Prompts longer than the model reads, of which the end was read."""
    unknown: int = 0
    """Tokens of prompts that the vocabulary lacks."""


@dataclass
class _Generation:
    """A prompt and its continuation so far."""

    prompt: list[int]
    """Its tokens, with the first one."""
    context: list[int]
    """What the model reads now: the end of the prompt and of what was written."""
    written: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    ended: bool = False

    def request(self, id: int, options: SearchOptions, constraints: TokenConstraints) -> Request:
        first, *prefix = self.context
        left = (options.max_length or 1) - len(self.written)
        remaining = options.but(max_length=left, min_length=max(0, options.min_length - len(self.written)))
        should_stop = self._stop(constraints, len(prefix)) if constraints.stops else None
        return Request(id, (), remaining, prefix, constraints.forbidden, should_stop=should_stop, first=first)

    def _stop(self, constraints: TokenConstraints, prompt: int) -> Callable[[Sequence[int]], bool]:
        before = list(self.written)
        return lambda tokens: constraints.reached_stop([*before, *tokens[prompt:]])

    def take(self, found: Hypothesis) -> None:
        """Append what was written after the context."""
        self.written += found.tokens[len(self.context) - 1 :]
        self.log_probability += found.log_probability
        self.ended = found.ended


class Generator(Inspectable, Pretrained):
    """Continues texts. Options of a call override those that the model was saved with."""

    model: LanguageModel[Any]
    model_task = "language_modeling"

    def __init__(self, contents: ModelFolder) -> None:
        self.contents = checked_contents(contents)
        if contents.task != "language_modeling":
            raise SettingsError("this is not a language model; use `transduce translate`")
        self.model, self.notes = cast("LanguageModel[Any]", contents.transducer), contents.notes
        self.tokenizer = contents.target_tokenizer
        self.model.freeze()
        self.engine: ModelEngine = TorchEngine(self.model, self.tokenizer.specials, self.tokenizer.specials)
        self.defaults = saved_options(generation_options(contents.notes.get("search", {})))
        self.counts = GenerationCounts()

    def use(self, precision: Precision) -> None:
        """Compute products in float32 (the default) or int8; not while it generates."""
        self.model.freeze(precision)

    @property
    def prompt_start(self) -> int | None:
        """The token before a prompt: the end token of another document, unless the note `prompt_start` of the folder is
        "start" or "nothing", as for some imported models."""
        tokens = {"end": self.tokenizer.end, "start": self.tokenizer.start, "nothing": None}
        return tokens.get(str(self.notes.get("prompt_start", "end")), self.tokenizer.end)

    @overload
    def __call__(self, prompt: str = "", *, n_best: None = None, **options: Any) -> str: ...
    @overload
    def __call__(self, prompt: str = "", *, n_best: int, **options: Any) -> list[Continuation]: ...
    @overload
    def __call__(self, prompt: Iterable[str], *, n_best: None = None, **options: Any) -> list[str]: ...
    @overload
    def __call__(self, prompt: Iterable[str], *, n_best: int, **options: Any) -> list[list[Continuation]]: ...

    def __call__(self, prompt: str | Iterable[str] = "", **options: Any) -> Any:
        """Continue one text, or each of a list; begin one without a prompt. Options are those of `generate`."""
        given = one_or_several(prompt)
        return self.generate([given], **options)[0] if isinstance(given, str) else self.generate(given, **options)

    @overload
    def generate(self, prompts: Iterable[str], *, n_best: None = None, **options: Any) -> list[str]: ...
    @overload
    def generate(self, prompts: Iterable[str], *, n_best: int, **options: Any) -> list[list[Continuation]]: ...

    def generate(
        self,
        prompts: Iterable[str],
        *,
        n_best: int | None = None,
        forbid: Sequence[str] = (),
        stop_at: Sequence[str] = (),
        **options: Any,
    ) -> list[str] | list[list[Continuation]]:
        """Return the continuation of each prompt; with `n_best`, that many of each, with scores.

        An empty prompt begins a document. Words of `forbid` are not written; texts end before a text of `stop_at`.
        Further options are those of `SearchOptions`: method, temperature, top_k, top_p, min_p, seed, max_length, …
        """
        if isinstance(prompts, str):
            raise TypeError("generate takes a list of prompts; call the generator itself with one: generator(prompt)")
        resolved = self.options(n_best=n_best, **options)
        found = self.continue_prompts(
            list(checked_texts(prompts, "prompts")), resolved, self.constraints(forbid, stop_at)
        )
        return [several[0].text for several in found] if n_best is None else found

    def options(self, **overrides: Any) -> SearchOptions:
        """Return the model's search options with some overridden; None keeps one."""
        return override_options(self.defaults, **overrides)

    def constraints(self, forbid: Sequence[str] = (), stop_at: Sequence[str] = ()) -> TokenConstraints:
        """Return constraints on the text, in this model's tokens."""
        return TokenConstraints(self.tokenizer, Constraints(forbid=forbid, stop_at=stop_at))

    def continue_prompts(
        self, prompts: Sequence[str], options: SearchOptions, constraints: TokenConstraints
    ) -> list[list[Continuation]]:
        """Continue prompts, each with `n_best` continuations.

        Greedy search and a single sample may write past the model's window: when it is full, they continue from its
        second half. Beam search and several samples end there.
        """
        options = self._bounded(options)
        generations = [self._begin(self._tokens(prompt), options) for prompt in prompts]
        requests = [one.request(number, options, constraints) for number, one in enumerate(generations)]
        found = self.engine.translate(requests)
        if self._slides(options):
            for one, several in zip(generations, found, strict=True):
                one.take(several[0])
            while going := [one for one in generations if not self._is_over(one, options)]:
                requests = [self._slid(one).request(number, options, constraints) for number, one in enumerate(going)]
                for one, several in zip(going, self.engine.translate(requests), strict=True):
                    one.take(several[0])
            continuations = [[self._continuation(one, options, constraints)] for one in generations]
        else:
            continuations = [
                [self._of_hypothesis(one, hypothesis, options, constraints) for hypothesis in several]
                for one, several in zip(generations, found, strict=True)
            ]
        return continuations

    def stream(
        self, prompt: str, options: SearchOptions | None = None, constraints: TokenConstraints | None = None
    ) -> collections.abc.Generator[str, None, Continuation]:
        """Continue one text and yield it piece by piece, as soon as no later token can change it.

        The generator returns the whole continuation.
        """
        resolved, constraints = self._bounded(options or self.options()), constraints or self.constraints()
        one, yielded = self._begin(self._tokens(prompt), resolved), ""
        streamed = StreamedText(self.tokenizer.decode, one.prompt)
        while True:
            before = list(one.written)
            for tokens, found in self.engine.stream(one.request(0, resolved, constraints)):
                one.written = before.copy()
                if found is None:
                    one.written += tokens[len(one.context) - 1 :]
                else:
                    one.take(found)
                is_last = found is not None and (not self._slides(resolved) or self._is_over(one, resolved))
                text = self._certain(one, streamed, constraints, is_last)
                if len(text) > len(yielded) and text.startswith(yielded):
                    yield text[len(yielded) :]
                    yielded = text
                if is_last:
                    return self._continuation(one, resolved, constraints)
            self._slid(one)

    def _certain(self, one: _Generation, streamed: StreamedText, constraints: TokenConstraints, is_last: bool) -> str:
        """The text that cannot change any more: without half a character or the beginning of a stop string."""
        if is_last:
            return constraints.cut_at_stop(self._text(one.prompt, one.written))
        count = len(one.written)
        if self.tokenizer.kind in SPELLING:  # consecutive bytes decode together or not at all
            while count and self.tokenizer.pieces([one.written[count - 1]])[0].startswith("<0x"):
                count -= 1
        before, tail = streamed.decode(one.written[:count])
        tail = self.tokenizer.settled(tail)
        tail = tail[: max(0, len(tail) - constraints.max_stop_prefix)]
        overlap = len(before) - constraints.max_stop_prefix  # a stop string may begin before the tail
        kept, read = (before[:overlap], before[overlap:]) if 0 < overlap < len(before) else (before, "")
        return kept + constraints.cut_at_stop(read + tail)

    def score_text(self, pieces: Iterable[DocumentPart], stride: int | None = None) -> TextScore:
        """Score a text of any length: every token once, given the tokens before it.

        A window of as many tokens as the model reads (or was trained with) moves by `stride` tokens, default: half of
        it. The end of every document is a token too; bytes and words are those of the text alone.
        """
        window = self.model.max_target or int(self.notes.get("block_size", DEFAULT_WINDOW))
        return score_text(self.model, self.tokenizer, pieces, window, stride or max(1, window // 2))

    def embed(self, texts: Iterable[str], pool: str = "mean", normalize: bool = False) -> NDArray[np.float32]:
        """Return a vector for each text: the hidden states of its tokens, averaged.  -> (texts, D).

        `pool` may also be "last", the state of the last token, which has read all others. A text longer than the
        model's window is read in parts. With `normalize` vectors have length 1, so that dot products are cosines.
        """
        first = self.tokenizer.end if self.prompt_start is None else self.prompt_start
        encoded = self.tokenizer.encode_batch(list(checked_texts(texts)))
        rows = [prompt_rows(tokens, first, self.model.max_target) for tokens in encoded]
        with self.engine.exclusive():
            read = decoder_states(self.model, self.tokenizer.specials)
            return pooled_vectors(self.model, rows, read, pool, normalize)

    def next_tokens(self, prompt: str, top: int = 10) -> tuple[Candidate, ...]:
        """Return the likeliest tokens after a prompt with their probabilities and logits, best first.

        `attention` has them for every position of the prompt.
        """
        hidden_TD = replay(self.model, (), self._window(self._tokens(prompt)))
        (step,) = decoding_steps(self.model, hidden_TD[-1:], (), top, self.tokenizer.pieces)
        return step.top

    def attention(self, prompt: str, max_length: int = 0, top: int = 10, **options: Any) -> AttentionMaps:
        """Return the attention maps of every head on a prompt, with the likeliest tokens after each of its tokens.

        With `max_length`, up to that many tokens are generated first and are part of the maps: by greedy search, or as
        further options of `SearchOptions` say. Of a prompt longer than the model reads, the end is read.
        """
        maps = self.inspect(prompt, max_length, top, **options)
        if not maps.maps:
            raise SettingsError(WITHOUT_ATTENTION)
        return maps

    @property
    def inspect_options(self) -> frozenset[str]:
        """Options of `transduce inspect` that have an effect on this model."""
        return frozenset(("max_length", "top", "beam_size", "kind", "layer", "head"))

    @property
    def inspect_note(self) -> str | None:
        """What was not inspected of the texts so far."""
        return "the text is longer than the context window; only its end is shown" if self.counts.shortened else None

    def inspect(self, prompt: str, max_length: int = 0, top: int = 10, **options: Any) -> AttentionMaps:
        """Return the same as `attention`; of a model without attention, the next-token distributions alone."""
        tokens, written = self._continued(prompt, max_length, **options)
        return causal_attention_of(
            self.model,
            self._window([*tokens, *written]),
            self.tokenizer.pieces,
            prompt=prompt,
            continuation=self._text(tokens, written) if written else "",
            generated=len(written),
            top=top,
        )

    def _continued(self, prompt: str, max_length: int, **options: Any) -> tuple[list[int], list[int]]:
        """Return the tokens of a prompt, and those generated after it (by default greedily, or none)."""
        tokens, written = self._tokens(prompt), []
        if max_length:
            search = self._inspected_options(max_length, **options)
            one = self._begin(tokens, search)
            one.take(self.engine.translate([one.request(0, search, self.constraints())])[0][0])
            written = [*one.written, *([self.tokenizer.end] if one.ended else [])]
        return tokens, written

    def _inspected_options(self, max_length: int, **options: Any) -> SearchOptions:
        """Return search options; greedy search unless others are given."""
        chosen = {name: value for name, value in options.items() if value is not None}
        return self.options(max_length=max_length, **(chosen or {"method": "greedy"}))

    def _exclusive(self) -> AbstractContextManager[None]:
        return self.engine.exclusive()

    @property
    def _written(self) -> AnyTokenizer:
        return self.tokenizer

    def prepare(
        self,
        text: str,
        max_length: int = 20,
        *,
        prefix: Sequence[int] = (),
        forbid: Sequence[str] = (),
        **options: Any,
    ) -> Subject:
        """Prepare a prompt for a search, greedy unless options say otherwise.

        `prefix` are tokens that every continuation begins with; words of `forbid` are not written.
        """
        search = self._inspected_options(max_length, **options)
        begun = self._begin([*self._tokens(text), *prefix_tokens(prefix, self.tokenizer)], search)
        return Subject(text, begun.request(0, search, self.constraints(forbid)), self.tokenizer, self.tokenizer)

    def decode(self, text: str, max_length: int = 0, **options: Any) -> ForcedDecoding:
        """Continue a prompt, or read it as it is, and return what is replayed; options are those of `attention`."""
        return self.force(text, self._continued(text, max_length, **options)[1])

    def force(self, text: str, written: Sequence[int]) -> ForcedDecoding:
        """Return what is replayed of a prompt and the tokens after it."""
        tokens = self._tokens(text)
        read = self._window([*tokens, *written])
        pieces = tuple(self.tokenizer.pieces(read))
        continuation = self._text(tokens, written) if written else ""
        return ForcedDecoding((), tuple(read), tuple(read[1:]), (), pieces, pieces[1:], text, continuation)

    def _sampled(self, text: str) -> Iterator[SampledMaps]:
        maps = self.attention(text, top=1)
        end = self.tokenizer.pieces([self.tokenizer.end])[0]
        return sample_maps(maps, (), (), (), (end, end))

    def _bounded(self, options: SearchOptions) -> SearchOptions:
        """Options with a maximum length: there is no source to derive one from."""
        return options if options.max_length is not None else options.but(max_length=GENERATION_DEFAULTS["max_length"])

    def _tokens(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt with the one before it, and count them."""
        tokens = self.tokenizer.encode(checked_text(prompt, "the prompt"))
        self.counts.prompts += 1
        self.counts.unknown += self.tokenizer.count_unknown(tokens)
        first = self.prompt_start
        if first is None and not tokens:  # the model must read a token before it can write one
            first = self.tokenizer.end
        return [*([] if first is None else [first]), *tokens]

    def _begin(self, tokens: list[int], options: SearchOptions) -> _Generation:
        """Start with a prompt; of a long one the model reads the end, and keeps space for new tokens."""
        limit = self.model.max_target
        reserved = 0 if limit is None else min(options.max_length or 1, limit // 2)
        return _Generation(tokens, self._window(tokens, reserved))

    def _window(self, tokens: list[int], reserved: int = 0) -> list[int]:
        """Return the end of a text that fits into the model's window, without the reserved positions."""
        if self.model.max_target is None:
            return tokens
        read = tokens[-max(1, self.model.max_target - reserved) :]
        self.counts.shortened += len(read) < len(tokens)
        return read

    def _slides(self, options: SearchOptions) -> bool:
        """Whether a full window slides: with one continuation per prompt, if the model has a limit."""
        return self.model.max_target is not None and options.method != "beam" and options.n_best == 1

    def _is_over(self, one: _Generation, options: SearchOptions) -> bool:
        return one.ended or len(one.written) >= (options.max_length or 1)

    def _slid(self, one: _Generation) -> _Generation:
        """Slide the window: keep its second half."""
        limit = self.model.max_target
        assert limit is not None
        one.context = [*one.prompt, *one.written][-max(1, limit // 2) :]
        return one

    def _text(self, prompt: Sequence[int], written: Sequence[int]) -> str:
        """The text written after a prompt, with the space between them."""
        before, whole = self.tokenizer.decode(prompt), self.tokenizer.decode([*prompt, *written])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(written)

    def _continuation(self, one: _Generation, options: SearchOptions, constraints: TokenConstraints) -> Continuation:
        text = constraints.cut_at_stop(self._text(one.prompt, one.written))
        has_end = one.ended and not (
            constraints.stops and constraints.reached_stop(one.written)
        )  # which is a token too
        score = normalize(one.log_probability, len(one.written) + has_end, options)
        return Continuation(text, score, one.log_probability, len(one.written), one.ended)

    def _of_hypothesis(
        self, one: _Generation, found: Hypothesis, options: SearchOptions, constraints: TokenConstraints
    ) -> Continuation:
        own = _Generation(one.prompt, one.context)
        own.take(found)
        return self._continuation(own, options, constraints)
