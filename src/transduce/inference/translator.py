"""Text in, text out: a model folder with its tokenizers and its search, as one callable.

translator = transduce.load("runs/demo")
translator("some text")
translator.translate(["a line", "another"], beam_size=5, n_best=3)
translator.attention("some text")            # shows itself in a notebook
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, overload

from transduce.errors import ModelFolderError, SettingsError
from transduce.inference.alignment import Links
from transduce.inference.answerer import Answerer, Counts, led, worded
from transduce.inference.ctranslate2.export import Quantization
from transduce.inference.ensemble import Ensemble
from transduce.inference.scoring import ScoredTarget, score_pairs
from transduce.inference.search.options import Request, SearchOptions, override_options
from transduce.inference.searcher import Choice, Searcher
from transduce.inference.segment import Part, cut_tokens
from transduce.inference.translation import Translation, together
from transduce.inspection.caption import Glances, glances_of
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.record import attention_of
from transduce.inspection.replay import next_tokens
from transduce.inspection.tape import Tape, has_tape, tape_of
from transduce.model_folder import ModelFolder, load_model
from transduce.models.interface import LanguageModel
from transduce.text.constraint import Constraints
from transduce.text.language import Languages
from transduce.text.picture import colours
from transduce.text.sentence import Piece, joint, split_sentences
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer.tag import Lead

T = TypeVar("T")


def load(folder: str | Path, *others: str | Path) -> Translator:
    """Load a run or model folder; or several, which then answer together, by the mean of their probabilities."""
    contents, *more = [load_model(Path(name)) for name in (folder, *others)]
    for name, one in zip((folder, *others), (contents, *more), strict=True):
        refuse_reader(name, one)
        if isinstance(one.model, LanguageModel):
            raise SettingsError(
                f"{name}: holds a language model, which goes on with a text and has nothing to translate; use "
                f"`transduce generate {name}`"
            )
    for name, other in zip(others, more, strict=True):
        for side in ("source_tokenizer", "target_tokenizer"):
            if getattr(contents, side).to_json() != getattr(other, side).to_json():
                raise SettingsError(
                    f"{name}: its {side.replace('_', ' ')} is not the one of {folder}; the models of an ensemble must "
                    "be trained on one prepared corpus (`transduce prepare`, then `train --prepared`)"
                )
    if more:
        contents = replace(contents, model=Ensemble([contents.transducer, *(other.transducer for other in more)]))
    return Translator(contents)


def refuse_reader(name: str | Path, contents: ModelFolder) -> None:
    """Say which verb a folder is for."""
    try:
        _ = contents.transducer
    except SettingsError as error:
        raise SettingsError(f"{name}: {error}") from None


def one_line(text: str) -> str:
    """Return an answer as one line of a file: a model of bytes may say a line break, which becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


class Translator:
    """Translates with one model. What is asked per call goes over the defaults that the model was saved with."""

    def __init__(self, contents: ModelFolder) -> None:
        self.model, self.notes = contents.transducer, contents.notes
        self.source, self.target = self._whole = contents.source_tokenizer, contents.target_tokenizer
        self.languages = Languages(contents.notes, self.source, self.target)
        """What can be asked for, and what is."""
        if self.languages.tags is not None:
            self.source, self.target = self.source.bare(), self.target.bare()
        self.model.freeze()
        self.engine = Searcher(contents)
        lead, side = self.languages.read, self.model.image_size
        self._answers = Answerer(self.source, self.target, self.engine, self.model.max_source, lead, side)
        try:
            self.defaults = SearchOptions.from_table(contents.notes.get("search", {}), "the model folder's search")
        except SettingsError as error:
            raise ModelFolderError(f"{error}; copy the folder again") from None
        self.counts = Counts()

    def __call__(self, text: str) -> str:
        """Translate one text."""
        return self.translate([text])[0]

    @overload
    def translate(self, lines: Iterable[str], *, n_best: None = None, **wishes: Any) -> list[str]: ...
    @overload
    def translate(self, lines: Iterable[str], *, n_best: int, **wishes: Any) -> list[list[Translation]]: ...

    def translate(
        self,
        lines: Iterable[str],
        *,
        n_best: int | None = None,
        split: bool = True,
        align: bool = False,
        prefixes: Iterable[str] = (),
        forbid: Sequence[str] = (),
        terms: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        stop_at: Sequence[str] = (),
        to: str | None = None,
        of: str | None = None,
        **options: Any,
    ) -> list[str] | list[list[Translation]]:
        """Translate lines; with `n_best` give that many answers to each, with scores, best first.

        `split` translates a line of several sentences one by one; `align` says which words belong together; `prefixes`
        are what the answers begin with, one for each line; words of `forbid` are not written, and those of `terms` are
        translated as it says; what fits a regular expression of `keep` is copied (`placeholder.USUAL` has the usual
        ones); answers end before a text of `stop_at`. A model of several languages has to be asked for one of them,
        `to`; some must also be told in which language the lines are, `of`. Further options are those of
        `SearchOptions`: method, beam_size, length_penalty, max_length, temperature, …
        """
        if isinstance(lines, str):
            raise SettingsError("translate takes lines; call the translator itself with one text: translator(text)")
        wished = self.options(n_best=n_best, **options)
        constraints = self.constraints(prefixes, forbid, terms, keep, stop_at)
        lead = self.languages.lead(to, of)
        answers = [
            answer
            for window in windows(lines)
            for answer in self.answer(window, wished, constraints, split, align, leads=[lead] * len(window))
        ]
        constraints.refuse_leftovers()
        return [answer[0].text for answer in answers] if n_best is None else answers

    def options(self, **wishes: Any) -> SearchOptions:
        """Return the model's search options with some of them changed; None leaves one as it is."""
        return override_options(self.defaults, **wishes)

    def constraints(
        self,
        prefixes: Iterable[str] = (),
        forbid: Sequence[str] = (),
        terms: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        stop_at: Sequence[str] = (),
    ) -> Constraints:
        """Return what is asked of the text of answers, in this model's tokens; see `translate`."""
        return Constraints(self.target, prefixes, forbid, terms, keep, stop_at)

    def answer(
        self,
        lines: Sequence[str],
        options: SearchOptions,
        constraints: Constraints | None = None,
        split: bool = False,
        align: bool = False,
        choose: Callable[[list[Translation]], list[Translation]] = list,
        counts: Counts | None = None,
        leads: Sequence[Lead] | None = None,
    ) -> list[list[Translation]]:
        """Answer a window of lines, each with as many translations as the options ask for.

        `split` translates a line of several sentences one by one, and puts their translations together; `align` says
        which words belong together; `choose` puts the answers to a line into another order; `counts` notes what
        happened instead of the translator's own; `leads` say the languages of each line (`languages.lead`).
        """
        counts = self.counts if counts is None else counts
        constraints = constraints or self.constraints()
        texts = [self._sentences(line) if split else [Piece(line, "")] for line in lines]
        prefixes = [prefix for several in texts for prefix in (constraints.next_prefix(), *[[]] * (len(several) - 1))]
        sentences = [piece.sentence for several in texts for piece in several]
        each = [self.languages.lead()] * len(texts) if leads is None else leads
        same = [lead for several, lead in zip(texts, each, strict=True) for _ in several]
        found = iter(self._answers.answer(sentences, prefixes, options, constraints, align, counts, same))
        answers = [choose(_of_line(several, [next(found) for _ in several], constraints)) for several in texts]
        counts.lines += len(lines)
        counts.several += sum(len(several) > 1 for several in texts)
        counts.empty += sum(not line.strip() for line in lines)
        counts.cut += sum(not answer[0].ended for answer in answers)
        counts.forbidden += sum(constraints.are_broken(answer[0].text) for answer in answers)
        counts.missing += sum(bool(answer[0].missing) for answer in answers)
        return answers

    def _sentences(self, line: str) -> list[Piece]:
        tag, text = self.source.split_tag(line)
        pieces = split_sentences(text, str(self.notes.get("source_language") or ""))
        return [Piece(tag + piece.sentence, piece.space) for piece in pieces] if len(pieces) > 1 else [Piece(line, "")]

    def stream(
        self,
        text: str,
        options: SearchOptions | None = None,
        constraints: Constraints | None = None,
        split: bool = True,
    ) -> Iterator[str]:
        """Translate one text and yield its translation piece by piece, as soon as no later token can change it.

        A greedy search or one sample says every token at once, a beam what all its openings have in common. What may
        be asked is made by `options` and `constraints`; what is kept letter by letter has to wait, and is not for this.
        """
        wished, constraints = options or self.options(), constraints or self.constraints()
        prefix, before, space, lead = constraints.next_prefix(), "", "", self.languages.lead()
        for piece in self._sentences(text) if split else [Piece(text, "")]:
            parts = self._answers.parts_of([piece.sentence])[0]
            for place, part in enumerate(parts):
                read = self.source.decode(part.tokens) if len(parts) > 1 else piece.sentence
                tokens, opening = part.after(lead.source), [*lead.target, *prefix]
                request, said = self._answers.request(tokens, wished, constraints, opening, read), ""
                for longer, is_over in self._answers.said(request, constraints) if part.tokens else ():
                    if longer and not said:
                        yield part.glue if place else joint(before, space, longer) if before else ""
                    yield longer[len(said) :]
                    said = longer
                    if is_over:
                        return
                before, prefix = said or before, []
            space = piece.space

    def use(self, engine: Choice, quantization: Quantization = "float32") -> None:
        """Choose what searches: PyTorch, or CTranslate2 for what it does as we do; `auto` takes that where it can.

        What CTranslate2 cannot do is searched by PyTorch all the same, and `engine.fallen_back` says why.
        """
        self.engine.use(engine, quantization)

    def use_shortlist(self, path: str | Path | None) -> None:
        """Search among the tokens that a file of `transduce shortlist` allows for each source; None for all again."""
        self.engine.use_shortlist(None if path is None else Shortlist.load(path, *self._whole))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[ScoredTarget | None]:
        """How likely the model finds given translations of given sources; None for a pair too long to read at once."""
        with self.engine.alone():
            return score_pairs(self.model, *self._encoded(pairs), self.source.specials, self.target.specials)

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Links | None]:
        """Which words of given translations belong to which of their sources, (source, target), both from 0.

        None for a pair too long to read at once.
        """
        lead = self.languages.lead()
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        read = [
            worded(part, lead.source, self.source.words_of(source))
            for source, tokens in zip(sources, self._answers.encode(sources), strict=True)
            for part in cut_tokens(self.source, tokens, len(tokens))
        ]
        written = zip(self.target.encode_batch(targets), map(self.target.words_of, targets), strict=True)
        return self._answers.links(read, [led(lead.target, words) for words in written])

    def attention(self, text: str, top: int = 5, **options: Any) -> AttentionMaps:
        """Translate one text and return where every head looked, with the likeliest tokens of each step.

        Of a text longer than the model reads at once, which is counted as split, only the first part is looked at.
        """
        if isinstance(self.model, Ensemble):
            raise SettingsError("an ensemble looks with several models at once; look inside one of them at a time")
        part, *others = self._answers.parts(*self._answers.encode([text]))
        lead = self.languages.lead()
        first, words = worded(part, lead.source, self.source.words_of(text))
        if others:
            self.counts.split += 1
            text = self._read_of(text, part)
        source_tokens = [*first, self.source.end]
        request = Request(0, first, self.options(**options), lead.target)
        best = self.engine.translate([request])[0][0]
        target_tokens = [self.target.start, *best.tokens, *([self.target.end] if best.ended else [])]
        with self.engine.alone():
            maps = attention_of(
                self.model,
                source_tokens,
                target_tokens,
                source_pieces=self.source.pieces(source_tokens),
                target_pieces=self.target.pieces(target_tokens),
                source=text,
                translation=self.target.decode(best.tokens),
            )
            maps = maps.with_steps(next_tokens(self.model, source_tokens, target_tokens, top, self.target.pieces))
        (links,) = self._answers.links([(first, words)], [(best.tokens, self.target.words(best.tokens))])
        return replace(maps, links=tuple(links or ()))

    def _read_of(self, text: str, part: Part) -> str:
        """Return the beginning of a text that its first part is: whole words, and of the last one what was read."""
        words = self.source.words_of(text)
        end = part.begin + len(part.tokens) - part.repeated
        last = max((word for word in words[:end] if word is not None), default=-1)
        read = text.split()[: last + 1]
        if read and end < len(words) and words[end] == last:
            own = [token for token, word in zip(part.tokens, part.of(words), strict=True) if word == last]
            read[-1] = "".join(self.source.decode(own).split())
        return " ".join(read)

    def tape(self, text: str, **options: Any) -> Tape:
        """Answer one text with a Neural Turing Machine and return what it did with its memory."""
        if not has_tape(self.model):
            raise SettingsError("this model has no memory that it writes to; ask a turing_machine that has heads")
        lead, whole = self.languages.lead(), self.source.encode(text)
        (part,) = cut_tokens(self.source, whole, len(whole))
        tokens = part.after(lead.source)
        best = self.engine.translate([Request(0, tokens, self.options(**options), lead.target)])[0][0]
        source_tokens = [*tokens, self.source.end]
        produced = [*best.tokens, *([self.target.end] if best.ended else [])]
        pieces = [*self.source.pieces(source_tokens), *self.target.pieces(produced)]
        with self.engine.alone():
            tape = tape_of(self.model, source_tokens, [self.target.start, *produced], pieces)
        return replace(tape, source=text, answer=self.target.decode(best.tokens))

    def glances(self, picture: str, **options: Any) -> Glances:
        """Caption one picture and return which regions were looked at for each word."""
        side = self.model.image_size
        if side is None:
            raise SettingsError("this model reads no pictures; ask a captioner")
        maps = self.attention(picture, **options)
        return glances_of(self.model, maps, colours(maps.source_pieces, side))

    def _encoded(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        lead = self.languages.lead()
        sources = self._answers.encode([source for source, _ in pairs])
        targets = self.target.encode_batch([target for _, target in pairs])
        return [[*lead.source, *tokens] for tokens in sources], [[*lead.target, *tokens] for tokens in targets]


def _of_line(
    pieces: Sequence[Piece], found: Sequence[list[Translation]], constraints: Constraints
) -> list[Translation]:
    """Put the translations of a line's sentences together, each with the white space behind it."""
    sources = [piece.sentence + piece.space for piece in pieces]
    answers = together(found, sources, lambda number, one, other: joint(one, pieces[number - 1].space, other))
    return [_stopped(answer, constraints) for answer in answers] if constraints.stops else answers


def _stopped(answer: Translation, constraints: Constraints) -> Translation:
    """Cut an answer at its first stop string."""
    text = constraints.stopped(answer.text)
    words = len(text.split())
    return replace(answer, text=text, links=tuple(link for link in answer.links if link[1] < words))


def windows(items: Iterable[T], size: int = 1024) -> Iterator[list[T]]:
    """Yield what is worked on together: similar lengths are then put next to each other."""
    rest = iter(items)
    while window := list(itertools.islice(rest, size)):
        yield window
