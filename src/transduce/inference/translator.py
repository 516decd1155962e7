"""Text in, text out: a model folder with its tokenizers and its engine, as one callable.

translator = transduce.load("runs/demo")
translator("some text")
translator(["a line", "another"])            # a list
translator.translate(["a line", "another"], beam_size=5, n_best=3)
translator.attention("some text")            # displays itself in a notebook

A line becomes sentences, a sentence becomes segments, and each segment a request for the engine; their hypotheses are
decoded and joined again.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from transduce.errors import SettingsError
from transduce.inference.alignment import cross_attention_all, word_links
from transduce.inference.ctranslate2.export import Quantization
from transduce.inference.embedding import encoder_states, pooled_vectors
from transduce.inference.engine import EngineName, SelectedEngine
from transduce.inference.inspectable import check_single
from transduce.inference.padding import windows
from transduce.inference.pretrained import Pretrained, checked_contents
from transduce.inference.scoring import ScoredTarget, score_pairs
from transduce.inference.search.options import Hypothesis, SearchOptions, override_options, saved_options
from transduce.inference.segment import (
    Segment,
    Segmenter,
    Sentence,
    Translation,
    TranslationCounts,
    TranslationOptions,
    join_segments,
    join_sentences,
    replace_broken,
)
from transduce.inference.translator_inspection import InspectableTranslator, WordedTokens
from transduce.model_folder import ModelFolder
from transduce.text.alignment import Links
from transduce.text.argument import checked_pairs, checked_text, checked_texts, one_or_several
from transduce.text.constraint import (
    Constraints,
    TokenConstraints,
    extract_placeholders,
    keeps_placeholders,
    restore_placeholders,
)
from transduce.text.image_file import ImageReader
from transduce.text.language import Languages
from transduce.text.sentence import SplitSentence, joint, split_sentences
from transduce.text.shortlist import Shortlist
from transduce.text.tokenizer.special import NO_PREFIX, LanguagePrefix

NO_CONSTRAINTS = Constraints()


class Translator(InspectableTranslator, Pretrained):
    """Translates with one model. Options of a call override those that the model was saved with."""

    model_task = "translation"

    def __init__(self, contents: ModelFolder) -> None:
        self.contents = checked_contents(contents)
        self.model, self.notes = contents.transducer, contents.notes
        self.source, self.target = self._tokenizers = contents.source_tokenizer, contents.target_tokenizer
        self.languages = Languages(contents.notes, self.source, self.target)
        """The languages that the model knows, and those that are selected."""
        if self.languages.tags is not None:
            self.source, self.target = self.source.without_languages(), self.target.without_languages()
        self.model.freeze()
        self.engine = SelectedEngine(contents)
        self._segmenter = Segmenter(
            self.source, self.model.max_source, self.languages.source_prefix_length, self.model.image_size
        )
        side = self.model.image_size
        self.images = None if side is None else ImageReader.from_notes(side, contents.notes.get("images", {}))
        """Reads the image files of a model for images: a source that ends in .png, .jpg or .jpeg is a path. Set it to
        None where sources come from others, as in a server; images are then pixels as text only."""
        self.defaults = saved_options(contents.notes.get("search", {}))
        self.counts = TranslationCounts()

    def _facts(self) -> Mapping[str, str]:
        known = self.languages
        pair = "" if known.source is None and known.target is None else f"{known.source or '?'} → {known.target or '?'}"
        many = "" if known.tags is None else f"{len(known.tags.languages)} target languages"
        return {**super()._facts(), **({"languages": pair or many} if pair or many else {})}

    @overload
    def __call__(self, text: str, *, n_best: None = None, **options: Any) -> str: ...
    @overload
    def __call__(self, text: str, *, n_best: int, **options: Any) -> list[Translation]: ...
    @overload
    def __call__(self, text: Iterable[str], *, n_best: None = None, **options: Any) -> list[str]: ...
    @overload
    def __call__(self, text: Iterable[str], *, n_best: int, **options: Any) -> list[list[Translation]]: ...

    def __call__(self, text: str | Iterable[str], **options: Any) -> Any:
        """Translate one text, or each text of a list; options are those of `translate`.

        A string gives a string, a list gives a list; with `n_best`, each becomes a list of translations with scores.
        """
        given = one_or_several(text)
        return self.translate([given], **options)[0] if isinstance(given, str) else self.translate(given, **options)

    @overload
    def translate(self, lines: Iterable[str], *, n_best: None = None, **options: Any) -> list[str]: ...
    @overload
    def translate(self, lines: Iterable[str], *, n_best: int, **options: Any) -> list[list[Translation]]: ...

    def translate(
        self,
        lines: Iterable[str],
        *,
        n_best: int | None = None,
        constraints: Constraints | None = None,
        split: bool = True,
        align: bool = False,
        target_language: str | None = None,
        source_language: str | None = None,
        **options: Any,
    ) -> list[str] | list[list[Translation]]:
        """Translate lines; with `n_best`, return that many translations of each with scores, best first.

        `constraints` are prefixes, forbidden words, terms, text to copy and stop strings. `split` translates a line of
        several sentences one by one; `align` adds the word alignment. A multilingual model needs `target_language`, and
        some need `source_language` too. Further options are those of `SearchOptions`: method, beam_size,
        length_penalty, max_length, temperature, …
        """
        if isinstance(lines, str):
            raise TypeError(
                "translate takes a list of lines; call the translator itself with one text: translator(text)"
            )
        misplaced = next((name for name in options if hasattr(NO_CONSTRAINTS, name)), None)
        if misplaced is not None:
            raise SettingsError(f"{misplaced} is a constraint; write constraints=transduce.Constraints({misplaced}=…)")
        in_tokens = self.constraints(constraints)
        resolved = TranslationOptions(self.options(n_best=n_best, **options), in_tokens, split, align)
        languages = self.languages.prefix(target_language, source_language)
        found = [
            several
            for window in windows(checked_texts(lines, "lines"))
            for several in self.translate_lines(self.read_images(window), resolved, languages=[languages] * len(window))
        ]
        in_tokens.check_all_used()
        return [several[0].text for several in found] if n_best is None else found

    def read_images(self, sources: Sequence[str], places: Sequence[str] = ()) -> list[str]:
        """Return the sources, with pixels in place of paths if the model is for images; errors name `places`."""
        return list(sources) if self.images is None else self.images.read_all(sources, places)

    def read_images_from(self, folder: str | Path | None, document: str | None = None) -> None:
        """Let relative paths of images start from a folder; without one, from that of the document with the paths."""
        if self.images is not None:
            self.images = replace(self.images, folder=Path(folder or Path(document or ".").parent))
        elif folder is not None:
            raise SettingsError(f"an image folder ({folder}) is for models that read images; leave it out")

    def options(self, **overrides: Any) -> SearchOptions:
        """Return the model's search options with some overridden; None keeps one."""
        return override_options(self.defaults, **overrides)

    def constraints(self, constraints: Constraints | None = None) -> TokenConstraints:
        """Return constraints in this model's tokens, for one list of lines."""
        if not isinstance(constraints, Constraints | None):
            raise TypeError(f"constraints must be transduce.Constraints(…), not {type(constraints).__name__}")
        return TokenConstraints(self.target, constraints or NO_CONSTRAINTS)

    def translate_lines(
        self,
        lines: Sequence[str],
        options: TranslationOptions,
        counts: TranslationCounts | None = None,
        languages: Sequence[LanguagePrefix] | None = None,
    ) -> list[list[Translation]]:
        """Translate a window of lines; `languages` has the language tokens of each line (`languages.prefix`).

        Images are pixels here, not paths (`read_images`). What happened is added to `counts`, default: the
        translator's own.
        """
        counts = self.counts if counts is None else counts
        each = [self.languages.prefix()] * len(lines) if languages is None else languages
        constraints = options.constraints
        sentences = [
            self._sentences(line, options.split, constraints.next_prefix(), own)
            for line, own in zip(lines, each, strict=True)
        ]
        flat = iter(self._translate_sentences(list(itertools.chain(*sentences)), options, counts))
        found = [
            options.rerank(join_sentences(several, [next(flat) for _ in several], constraints)) for several in sentences
        ]
        counts.lines += len(lines)
        counts.several += sum(len(several) > 1 for several in sentences)
        counts.empty += sum(not line.strip() for line in lines)
        counts.cut += sum(not several[0].ended for several in found)
        counts.forbidden += sum(constraints.has_forbidden_word(several[0].text) for several in found)
        counts.missing += sum(bool(several[0].missing) for several in found)
        return found

    def stream(
        self,
        text: str,
        options: SearchOptions | None = None,
        constraints: TokenConstraints | None = None,
        split: bool = True,
        languages: LanguagePrefix | None = None,
    ) -> Generator[str, None, Translation]:
        """Translate one text and yield its translation piece by piece, as soon as no later token can change it.

        Greedy search and a single sample yield every token at once, beam search what all its beams have in common.
        Arguments are made by `options`, `constraints` and `languages.prefix`; `keep` of `constraints` has no effect
        here. The generator returns the whole translation.
        """
        search, constraints = options or self.options(), constraints or self.constraints()
        whole, before, space = Translation("", 0.0), "", ""
        (text,) = self.read_images([checked_text(text, "the text")])
        for sentence in self._sentences(text, split, constraints.next_prefix(), languages or self.languages.prefix()):
            (segments,) = self._segmenter.segments([sentence])
            for place, segment in enumerate(segments):
                written = ""
                for longer, found in self._stream_segment(segment, search, constraints) if segment.tokens else ():
                    gap = ""
                    if longer and not written:
                        gap = segment.joiner if place else joint(before, space, longer) if before else ""
                    piece = gap + longer[len(written) :]
                    whole, written = replace(whole, text=whole.text + piece), longer
                    if piece:
                        yield piece
                    if found is not None:
                        one = self._translation(segment, found, None, constraints)
                        missing, ended = whole.missing + one.missing, whole.ended and one.ended
                        whole = replace(whole, score=whole.score + one.score, ended=ended, missing=missing)
                        if constraints.cut_at_stop(one.text) != one.text:
                            return whole
                before = written or before
            space = sentence.space
        return whole

    def cut(self, text: str, split: bool = True) -> tuple[str, list[SplitSentence]]:
        """Cut a text of several lines into what the model reads at once: sentences, or parts of long ones.

        Returns the white space before the first, and each of them with what follows unchanged: white space, and text
        of which the tokenizer leaves nothing.
        """
        found: list[tuple[str, list[str]]] = [("", [])]  # the first stands for what is before the first sentence
        for number, line in enumerate(text.split("\n")):
            body = line.strip()
            before, _, behind = line.partition(body) if body else (line, "", "")
            found[-1][1].append("\n" * (number > 0) + before)
            for sentence in self._sentences(body, split, [], NO_PREFIX) if body else ():
                (parts,) = self._segmenter.segments([sentence])
                for part in parts:
                    found[-1][1].append(part.joiner)
                    found.append((part.text, []))
                found[-1][1].append(sentence.space if parts else sentence.text + sentence.space)
            found[-1][1].append(behind)
        (_, leading), *sentences = found
        return "".join(leading), [SplitSentence(sentence, "".join(space)) for sentence, space in sentences]

    def _stream_segment(
        self, segment: Segment, options: SearchOptions, constraints: TokenConstraints
    ) -> Iterator[tuple[str, Hypothesis | None]]:
        """Yield the certain text of a segment's translation as it grows, at last with the hypothesis."""
        written = ""
        for tokens, found in self.engine.stream(segment.request(0, options, constraints)):
            text = self.target.decode(tokens)
            if found is None:
                text = self.target.settled(text[: max(0, len(text) - constraints.max_stop_prefix)])
            text = constraints.cut_at_stop(text)
            if len(text) > len(written) and text.startswith(written):
                written = text
                yield written, found
            elif found is not None:
                yield written, found

    def embed(self, texts: Iterable[str], pool: str = "mean", normalize: bool = False) -> NDArray[np.float32]:
        """Return a vector for each source text: the encoder's output for all its tokens, averaged.  -> (texts, D).

        A text longer than the model reads at once is encoded in parts. `pool` may also be "last", the end token's
        vector; with `normalize` vectors have length 1, so that dot products are cosines.
        """
        check_single(self.model)
        sentences = [
            Sentence(text, languages=self.languages.prefix()) for text in self.read_images(list(checked_texts(texts)))
        ]
        rows = [[segment.source for segment in several] for several in self._segmenter.segments(sentences)]
        with self.engine.exclusive():
            read = encoder_states(self.model, self.source.specials)
            return pooled_vectors(self.model, [several or [[]] for several in rows], read, pool, normalize)

    def use(self, engine: EngineName, quantization: Quantization = "float32") -> None:
        """Select the engine: `torch`, `ctranslate2`, or `auto` for CTranslate2 where it supports the model.

        `quantization` is float32 or int8; CTranslate2 has more. PyTorch takes the requests that CTranslate2 rejects:
        `engine.fallbacks` counts them, and `engine.fallback_reason` says why.
        """
        self.engine.use(engine, quantization)

    def use_shortlist(self, path: str | Path | None) -> None:
        """Search among the tokens that a file of `transduce shortlist` lists for each source; None for all again."""
        self.engine.use_shortlist(None if path is None else Shortlist.load(path, *self._tokenizers))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[ScoredTarget | None]:
        """Score given translations of given sources; None for a pair too long to read at once."""
        languages, pairs = self.languages.prefix(), checked_pairs(pairs)
        texts = self.read_images([source for source, _ in pairs])
        sources = [[*languages.source, *tokens] for tokens in self._segmenter.encode(texts)]
        targets = [[*languages.target, *tokens] for tokens in self.target.encode_batch([target for _, target in pairs])]
        with self.engine.exclusive():
            return score_pairs(self.model, sources, targets, self.source.specials, self.target.specials)

    def align(self, pairs: Sequence[tuple[str, str]], languages: LanguagePrefix | None = None) -> list[Links | None]:
        """Align the words of given translations with those of their sources: (source, target), both from 0.

        None for a pair too long to read at once. `languages` is made by `languages.prefix`, by default of the languages
        that are selected.
        """
        languages, pairs = languages or self.languages.prefix(), checked_pairs(pairs)
        sources, targets = self.read_images([source for source, _ in pairs]), [target for _, target in pairs]
        read: list[WordedTokens] = []
        for source, tokens in zip(sources, self._segmenter.encode(sources), strict=True):
            (segment,) = self._segmenter.cut(Sentence(source, languages=languages), tokens, whole=True)
            read.append((segment.source, segment.words(self.source.words_of(source))))
        written: list[WordedTokens] = [
            ([*languages.target, *tokens], [*[None] * len(languages.target), *self.target.words_of(target)])
            for target, tokens in zip(targets, self.target.encode_batch(targets), strict=True)
        ]
        return self.align_tokens(read, written)

    def _sentences(self, line: str, split: bool, prefix: list[int], languages: LanguagePrefix) -> list[Sentence]:
        """Split a line into sentences; the first one gets the prefix of the line."""
        whole = Sentence(line, prefix=prefix, languages=languages)
        if not split:
            return [whole]
        tag, text = self.source.split_tag(line)
        pieces = split_sentences(text, str(self.notes.get("source_language") or ""))
        if len(pieces) == 1:
            return [whole]
        return [
            replace(whole, text=tag + piece.sentence, space=piece.space, prefix=() if number else prefix)
            for number, piece in enumerate(pieces)
        ]

    def _translate_sentences(
        self, sentences: Sequence[Sentence], options: TranslationOptions, counts: TranslationCounts
    ) -> list[list[Translation]]:
        """Translate sentences; where a placeholder is not copied, translate again without it and put it back."""
        segments = self._segmenter.segments(sentences)
        pairs = list(zip(sentences, segments, strict=True))
        counts.unread += sum(bool(sentence.text.strip()) and not several for sentence, several in pairs)
        counts.split += sum(len(several) > 1 for several in segments)
        counts.unknown += sum(self.source.count_unknown(one.tokens) for several in segments for one in several)
        found = self._search(sentences, segments, options, options.align)
        return found if options.constraints.kept is None else self._restore_placeholders(sentences, found, options)

    def _restore_placeholders(
        self, sentences: Sequence[Sentence], found: list[list[Translation]], options: TranslationOptions
    ) -> list[list[Translation]]:
        kept = options.constraints.kept
        assert kept is not None
        pairs = zip(sentences, found, strict=True)
        intact = [[keeps_placeholders(kept, sentence.text, one.text) for one in several] for sentence, several in pairs]
        lost = [number for number, several in enumerate(intact) if not all(several)]
        taken = [extract_placeholders(kept, sentences[number].text) for number in lost]
        rest = [replace(sentences[number], text=left) for number, (left, _) in zip(lost, taken, strict=True)]
        again = self._search(rest, self._segmenter.segments(rest), options, self.model.attends)
        for number, (left, placeholders), several in zip(lost, taken, again, strict=True):
            whole = sentences[number].text
            mended = [
                replace(one, text=restore_placeholders(one.text, placeholders, one.links) if left.strip() else whole)
                for one in several
            ]
            found[number] = replace_broken(found[number], intact[number], mended)
        return found

    def _search(
        self,
        sentences: Sequence[Sentence],
        segments: Sequence[Sequence[Segment]],
        options: TranslationOptions,
        align: bool,
    ) -> list[list[Translation]]:
        """Translate the segments of sentences, and join them."""
        flat = [segment for several in segments for segment in several if segment.tokens]
        requests = [segment.request(id, options.search, options.constraints) for id, segment in enumerate(flat)]
        hypotheses = self.engine.translate(requests)
        links = iter(self._links_of(sentences, segments, hypotheses)) if align else itertools.repeat(None)
        found = iter(
            [self._translation(segment, one, next(links), options.constraints) for one in several]
            for segment, several in zip(flat, hypotheses, strict=True)
        )
        nothing = [Translation("", 0.0)] * options.search.n_best
        return [
            join_segments(several, [next(found) if segment.tokens else nothing for segment in several])
            for several in segments
        ]

    def _translation(
        self, segment: Segment, found: Hypothesis, links: Links | None, constraints: TokenConstraints
    ) -> Translation:
        text = self.target.decode(found.tokens)
        missing = constraints.missing(segment.text, text) if constraints.has_terms else []
        return Translation(text, found.score, found.ended, tuple(missing), tuple(links or ()))

    def _links_of(
        self,
        sentences: Sequence[Sentence],
        segments: Sequence[Sequence[Segment]],
        hypotheses: Sequence[list[Hypothesis]],
    ) -> list[Links | None]:
        """Align each hypothesis with the words of its sentence."""
        read = [
            (segment.source, segment.words(words))
            for sentence, several in zip(sentences, segments, strict=True)
            for words in [self.source.words_of(sentence.text)]
            for segment in several
            if segment.tokens
        ]
        pairs = [(source, one.tokens) for source, several in zip(read, hypotheses, strict=True) for one in several]
        return self.align_tokens(
            [source for source, _ in pairs], [(tokens, self.target.words(tokens)) for _, tokens in pairs]
        )

    def align_tokens(self, sources: Sequence[WordedTokens], targets: Sequence[WordedTokens]) -> list[Links | None]:
        """Align the words of pairs; None for a pair too long to read at once."""
        read, written = [tokens for tokens, _ in sources], [tokens for tokens, _ in targets]
        with self.engine.exclusive():
            weights = cross_attention_all(self.model, read, written, self.source.specials, self.target.specials)
        return [
            None if weight_TS is None else word_links(weight_TS, source_words, target_words)
            for weight_TS, (_, source_words), (_, target_words) in zip(weights, sources, targets, strict=True)
        ]
