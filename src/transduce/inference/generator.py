"""A beginning in, how it goes on out: the folder of a language model as one callable.

generator = transduce.load("runs/author")
generator("Once upon a time")
generator.generate(["ROMEO:", "JULIET:"], temperature=0.7, max_length=300)
for piece in generator.stream("Once upon"): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from transduce.errors import ModelFolderError, SettingsError
from transduce.inference.scoring import USUAL_WINDOW, TextScore, score_text
from transduce.inference.search.options import (
    GENERATION_DEFAULTS,
    Hypothesis,
    Request,
    SearchOptions,
    generation_options,
    override_options,
)
from transduce.inference.search.penalty import normalize
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder, load_model
from transduce.models.interface import LanguageModel
from transduce.text.constraint import Constraints
from transduce.text.plain import Piece


@dataclass(frozen=True)
class Continuation:
    """One way to go on with a prompt."""

    text: str
    """What follows the prompt."""
    score: float
    """The log-probability divided by the length penalty; what several are ranked by."""
    log_probability: float
    """Of what follows, and of the end where the model ended it."""
    tokens: int
    """How many were written."""
    ended: bool
    """Whether the model ended it, or a stop string; False where the maximum length cut it off."""


@dataclass
class Counts:
    """What happened to the prompts so far."""

    prompts: int = 0
    shortened: int = 0
    """Prompts longer than the model reads; of these only the end was read."""
    unknown: int = 0
    """Tokens of prompts that the vocabulary lacks."""


@dataclass
class _Writing:
    """A prompt on its way."""

    prompt: list[int]
    """Its tokens, with what stands first."""
    context: list[int]
    """What the model reads now: the end of the prompt and of what was written."""
    written: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    ended: bool = False

    def request(self, id: int, options: SearchOptions, constraints: Constraints) -> Request:
        first, *prefix = self.context
        left = (options.max_length or 1) - len(self.written)
        wishes = options.but(max_length=left, min_length=max(0, options.min_length - len(self.written)))
        is_over = self._stop(constraints, len(prefix)) if constraints.stops else None
        return Request(id, (), wishes, prefix, constraints.forbidden, should_stop=is_over, first=first)

    def _stop(self, constraints: Constraints, prompt: int) -> Callable[[Sequence[int]], bool]:
        before = list(self.written)
        return lambda tokens: constraints.is_over([*before, *tokens[prompt:]])

    def take(self, found: Hypothesis) -> None:
        """Take in what was written from the context on."""
        self.written += found.tokens[len(self.context) - 1 :]
        self.log_probability += found.log_probability
        self.ended = found.ended


class Generator:
    """Goes on with texts. What is asked per call goes over the defaults that the model was saved with."""

    def __init__(self, contents: ModelFolder) -> None:
        if not isinstance(contents.transducer, LanguageModel):
            raise SettingsError("this model translates, and has no text to go on with; use `transduce translate`")
        self.model, self.notes = contents.transducer, contents.notes
        self.tokenizer = contents.target_tokenizer
        self.model.freeze()
        self._engine = TorchEngine(self.model, self.tokenizer.specials, self.tokenizer.specials)
        try:
            saved = generation_options(contents.notes.get("search", {}))
            self.defaults = SearchOptions.from_table(saved, "the model folder's search")
        except SettingsError as error:
            raise ModelFolderError(f"{error}; copy the folder again") from None
        self.counts = Counts()

    @property
    def opens_with(self) -> int | None:
        """What stands before a document: the end of another, unless the folder's notes say `opens_with` "start" or
        "nothing", as for a model that was trained elsewhere."""
        tokens = {"end": self.tokenizer.end, "start": self.tokenizer.start, "nothing": None}
        return tokens.get(str(self.notes.get("opens_with", "end")), self.tokenizer.end)

    def __call__(self, prompt: str = "") -> str:
        """Go on with one text, or begin one."""
        return self.generate([prompt])[0]

    @overload
    def generate(self, prompts: Iterable[str], *, n_best: None = None, **wishes: Any) -> list[str]: ...
    @overload
    def generate(self, prompts: Iterable[str], *, n_best: int, **wishes: Any) -> list[list[Continuation]]: ...

    def generate(
        self,
        prompts: Iterable[str],
        *,
        n_best: int | None = None,
        forbid: Sequence[str] = (),
        stop_at: Sequence[str] = (),
        **options: Any,
    ) -> list[str] | list[list[Continuation]]:
        """Return what follows each prompt; with `n_best` that many continuations of each, with scores.

        An empty prompt begins a document. Words of `forbid` are not written; answers end before a text of `stop_at`.
        Further options are those of `SearchOptions`: method, temperature, top_k, top_p, min_p, seed, max_length, …
        """
        if isinstance(prompts, str):
            raise SettingsError("generate takes several prompts; call the generator itself with one: generator(prompt)")
        wished = self.options(n_best=n_best, **options)
        answers = self.answer(list(prompts), wished, self.constraints(forbid, stop_at))
        return [answer[0].text for answer in answers] if n_best is None else answers

    def options(self, **wishes: Any) -> SearchOptions:
        """Return the model's options with some of them changed; None leaves one as it is."""
        return override_options(self.defaults, **wishes)

    def constraints(self, forbid: Sequence[str] = (), stop_at: Sequence[str] = ()) -> Constraints:
        """Return what is asked of the text of answers, in this model's tokens."""
        return Constraints(self.tokenizer, forbid=forbid, stop_at=stop_at)

    def answer(
        self, prompts: Sequence[str], options: SearchOptions, constraints: Constraints
    ) -> list[list[Continuation]]:
        """Go on with prompts, each in as many ways as the options ask for.

        A greedy search or one sample of each goes on for as long as it is asked to: once the model's window is full, it
        reads on from the second half of it. A beam and several samples end there.
        """
        options = self._bounded(options)
        writings = [self._begin(prompt, options) for prompt in prompts]
        requests = [one.request(number, options, constraints) for number, one in enumerate(writings)]
        found = self._engine.translate(requests)
        if self._slides(options):
            for one, several in zip(writings, found, strict=True):
                one.take(several[0])
            while going := [one for one in writings if not self._is_over(one, options)]:
                requests = [self._slid(one).request(number, options, constraints) for number, one in enumerate(going)]
                for one, several in zip(going, self._engine.translate(requests), strict=True):
                    one.take(several[0])
            answers = [[self._continuation(one, options, constraints)] for one in writings]
        else:
            answers = [
                [self._of_hypothesis(one, hypothesis, options, constraints) for hypothesis in several]
                for one, several in zip(writings, found, strict=True)
            ]
        return answers

    def stream(
        self, prompt: str, options: SearchOptions | None = None, constraints: Constraints | None = None
    ) -> Iterator[str]:
        """Go on with one text and yield what follows piece by piece, as soon as no later token can change it."""
        wished, constraints = self._bounded(options or self.options()), constraints or self.constraints()
        one, said = self._begin(prompt, wished), ""
        while True:
            before, room = list(one.written), self._room(one, wished)
            for tokens, leg_is_over in self._engine.stream(one.request(0, wished, constraints)):
                one.written = [*before, *tokens[len(one.context) - 1 :]]
                if leg_is_over:
                    whole = self._text(one.prompt, one.written)
                    one.ended = len(one.written) - len(before) < room or constraints.stopped(whole) != whole
                is_last = leg_is_over and (not self._slides(wished) or self._is_over(one, wished))
                text = self._certain(one, constraints, is_last)
                if len(text) > len(said) and text.startswith(said):
                    yield text[len(said) :]
                    said = text
                if is_last:
                    return
            self._slid(one)

    def _certain(self, one: _Writing, constraints: Constraints, is_last: bool) -> str:
        """What was written so far and cannot change any more: not half a character, nor the beginning of a stop."""
        if is_last:
            return constraints.stopped(self._text(one.prompt, one.written))
        count, pieces = len(one.written), self.tokenizer.pieces(one.written)
        if self.tokenizer.kind == "character":  # bytes in a row are a text or broken, all together
            while count and pieces[count - 1].startswith("<0x"):
                count -= 1
        text = self._text(one.prompt, one.written[:count]).rstrip("\ufffd")
        text = text[: max(0, len(text) - constraints.held_back)]
        text = text.rpartition(" ")[0] if self.tokenizer.kind == "wordpiece" else text
        return constraints.stopped(text)

    def score_text(self, pieces: Iterable[Piece], stride: int | None = None) -> TextScore:
        """Say how likely the model finds a text of any length: every token once, with what stands before it.

        A window of as many tokens as the model reads (or learnt to read) moves on by `stride` of them, half of it
        unless given. The end of every document is a token too, and its bytes and words are those of the text alone.
        """
        window = self.model.max_target or int(self.notes.get("block_size", USUAL_WINDOW))
        return score_text(self.model, self.tokenizer, pieces, window, stride or max(1, window // 2))

    def _bounded(self, options: SearchOptions) -> SearchOptions:
        """Options with a maximum length: there is no source that an answer could be measured by."""
        return options if options.max_length is not None else options.but(max_length=GENERATION_DEFAULTS["max_length"])

    def _begin(self, prompt: str, options: SearchOptions) -> _Writing:
        """What the model reads of a prompt: all, or as much of its end as leaves room to write."""
        tokens = self.tokenizer.encode(prompt)
        self.counts.prompts += 1
        self.counts.unknown += self.tokenizer.count_unknown(tokens)
        first = self.opens_with
        if first is None and not tokens:  # something must be read before anything can be written
            first = self.tokenizer.end
        tokens, limit = [*([] if first is None else [first]), *tokens], self.model.max_target
        context = tokens
        if limit is not None:
            context = tokens[-max(1, limit - min(options.max_length or 1, limit // 2)) :]
            self.counts.shortened += len(context) < len(tokens)
        return _Writing(tokens, context)

    def _slides(self, options: SearchOptions) -> bool:
        """Whether a full window is moved on: where there is one way to go on, and the model has a limit."""
        return self.model.max_target is not None and options.method != "beam" and options.n_best == 1

    def _room(self, one: _Writing, options: SearchOptions) -> int:
        """How many tokens can be written behind a context."""
        wanted, limit = (options.max_length or 1) - len(one.written), self.model.max_target
        return wanted if limit is None else min(wanted, limit - len(one.context))

    def _is_over(self, one: _Writing, options: SearchOptions) -> bool:
        return one.ended or len(one.written) >= (options.max_length or 1)

    def _slid(self, one: _Writing) -> _Writing:
        """Move the window on: keep the second half of it."""
        limit = self.model.max_target
        assert limit is not None
        one.context = [*one.prompt, *one.written][-max(1, limit // 2) :]
        return one

    def _text(self, prompt: Sequence[int], written: Sequence[int]) -> str:
        """What was written behind a prompt, spaces between them included."""
        before, whole = self.tokenizer.decode(prompt), self.tokenizer.decode([*prompt, *written])
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(written)

    def _continuation(self, one: _Writing, options: SearchOptions, constraints: Constraints) -> Continuation:
        text = constraints.stopped(self._text(one.prompt, one.written))
        has_end = one.ended and not (constraints.stops and constraints.is_over(one.written))  # which is a token too
        score = normalize(one.log_probability, len(one.written) + has_end, options)
        return Continuation(text, score, one.log_probability, len(one.written), one.ended)

    def _of_hypothesis(
        self, one: _Writing, found: Hypothesis, options: SearchOptions, constraints: Constraints
    ) -> Continuation:
        own = _Writing(one.prompt, one.context)
        own.take(found)
        return self._continuation(own, options, constraints)


def load_generator(folder: str | Path) -> Generator:
    """Load the language model of a run or model folder."""
    contents = load_model(Path(folder))
    if not isinstance(contents.transducer, LanguageModel):
        raise SettingsError(
            f"{folder}: holds a model that translates, and no text to go on with; use `transduce translate {folder}`"
        )
    return Generator(contents)
