"""Inspection of translations: attention maps, beam trees, forced branches, patches; part of every translator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from transduce.errors import SettingsError
from transduce.inference.beam_tree import trace_tree
from transduce.inference.engine import SelectedEngine
from transduce.inference.inspectable import Inspectable, check_single
from transduce.inference.intervention import choose_patch, compare_patched
from transduce.inference.search.options import Hypothesis, Request, SearchOptions
from transduce.inference.segment import Segmenter, Sentence, TranslationCounts
from transduce.inference.subject import Subject, prefix_tokens
from transduce.inspection.beam_tree import BeamHypothesis, BeamTree
from transduce.inspection.caption import RegionAttention, region_attention_of
from transduce.inspection.head_role import SampledMaps, sample_maps
from transduce.inspection.intervention import Intervention
from transduce.inspection.maps import AttentionMaps
from transduce.inspection.patching import Where
from transduce.inspection.record import forced_attention
from transduce.inspection.replay import ForcedDecoding, next_tokens
from transduce.inspection.tape import TapeRecord, has_tape, tape_of
from transduce.text.alignment import Links
from transduce.text.argument import checked_text
from transduce.text.constraint import Constraints, TokenConstraints
from transduce.text.image_file import ImageReader, is_image_path
from transduce.text.language import Languages
from transduce.text.picture import colours, decode_pixels
from transduce.text.tokenizer import AnyTokenizer
from transduce.text.tokenizer.special import LanguagePrefix

WordedTokens = tuple[Sequence[int], Sequence[int | None]]
"""Tokens, and the word of their text that each belongs to."""


class InspectableTranslator(Inspectable):
    """What can be inspected of a model that translates."""

    source: AnyTokenizer
    target: AnyTokenizer
    languages: Languages
    engine: SelectedEngine
    images: ImageReader | None
    counts: TranslationCounts
    _segmenter: Segmenter

    # What a translator has besides; its own methods document them.

    @abstractmethod
    def options(self, **overrides: Any) -> SearchOptions: ...

    @abstractmethod
    def constraints(self, constraints: Constraints | None = None) -> TokenConstraints: ...

    @abstractmethod
    def read_images(self, sources: Sequence[str], places: Sequence[str] = ()) -> list[str]: ...

    @abstractmethod
    def align_tokens(self, sources: Sequence[WordedTokens], targets: Sequence[WordedTokens]) -> list[Links | None]:
        """Align the words of pairs; None for a pair too long to read at once."""

    def attention(self, text: str, top: int = 5, **options: Any) -> AttentionMaps:
        """Translate one text and return the attention maps of every head, with the likeliest tokens of each step.

        Of a text longer than the model reads at once, which is counted as split, the first segment is translated.
        """
        check_single(self.model)
        subject = self.prepare(text, **options)
        best = self._best(subject.request)
        forced = subject.force(best)
        with self.engine.exclusive():
            maps = forced_attention(self.model, forced)
            steps = next_tokens(self.model, forced.source_tokens, forced.target_tokens, top, self.target.pieces)
        (links,) = self.align_tokens(
            [(subject.request.source, subject.words)], [(best.tokens, self.target.words(best.tokens))]
        )
        return replace(maps.with_steps(steps), links=tuple(links or ()))

    def beam_tree(
        self,
        text: str,
        *,
        prefix: str | Sequence[int] = (),
        constraints: Constraints | None = None,
        **options: Any,
    ) -> BeamTree:
        """Translate one text and return every hypothesis step by step: scores, what was kept, and what pruned and why.

        `prefix` is what all hypotheses begin with, as text or as tokens. Options are those of `SearchOptions`; the
        search is PyTorch's, over the whole vocabulary.
        """
        subject = self.prepare(text, prefix, constraints, **options)
        return trace_tree(subject, self._twin(share_packed=True))

    def continue_from(self, text: str, prefix: str | Sequence[int], **options: Any) -> tuple[BeamHypothesis, ...]:
        """Translate one text with translations that begin with a prefix, and return the `n_best`, best first.

        Tokens are forced exactly: `tree.tokens(node)` of a beam tree forces a branch that was pruned. Scores count the
        prefix, so they compare with those of other translations of the text.
        """
        subject = self.prepare(text, prefix, **options)
        (found,) = self.engine.translate([subject.request])
        return subject.describe(found)

    def patch(
        self,
        text: str,
        other: str,
        where: Where = "memory",
        *,
        words: Iterable[int] | None = None,
        tokens: Iterable[int] | None = None,
        steps: Iterable[int] | None = None,
        **options: Any,
    ) -> Intervention:
        """Translate a text with some activations of another text, and compare before and after.

        `where` is "memory" (the encoder's output), (stack, layer) for the residual after a layer, or (kind, layer,
        head) for the output of a head. In the encoder they are replaced at `words` or `tokens` of the source, which
        count from 0 and must be as many tokens in both texts, or everywhere; in the decoder and in cross-attention at
        `steps` of the target, or at all, by what they would be for the other text after the same target tokens.
        """
        subjects = self.prepare(text, **options), self.prepare(other, languages=options.get("languages"))
        patch = choose_patch(*subjects, where, words, tokens, steps)
        return compare_patched(*subjects, patch, self._twin(), self._twin())

    @property
    def inspect_options(self) -> frozenset[str]:
        """Options of `transduce inspect` that have an effect on this model."""
        has_maps = not has_tape(self.model) and self.model.image_size is None
        maps = ("top", "kind", "layer", "head") if has_maps else ()
        return frozenset(("source_language", "target_language", "beam_size", *maps))

    @property
    def inspect_note(self) -> str | None:
        """What was not inspected of the texts so far."""
        split = "the text is longer than the model's maximum; only its first part is shown"
        return split if self.counts.split else None

    def inspect(
        self, text: str, source_language: str | None = None, target_language: str | None = None, **options: Any
    ) -> AttentionMaps | TapeRecord | RegionAttention:
        """Translate one text and return what shows best how: attention maps, memory accesses, or attended regions."""
        self.languages.select(target_language, source_language)
        if has_tape(self.model):
            return self.tape(text, **options)
        if self.model.image_size is not None:
            return self.region_attention(text, **options)
        return self.attention(text, **options)

    def tape(self, text: str, **options: Any) -> TapeRecord:
        """Translate one text with a Neural Turing Machine and return what it did with its memory."""
        if not has_tape(self.model):
            raise SettingsError("this model has no memory that it writes to; inspect a turing_machine that has heads")
        (segment,) = self._segmenter.cut(
            Sentence(text, languages=self.languages.prefix()), self.source.encode(text), whole=True
        )
        best = self._best(segment.request(0, self.options(**options), self.constraints()))
        source_tokens = [*segment.source, self.source.end]
        produced = [*best.tokens, *([self.target.end] if best.ended else [])]
        pieces = [*self.source.pieces(source_tokens), *self.target.pieces(produced)]
        with self.engine.exclusive():
            tape = tape_of(self.model, source_tokens, [self.target.start, *produced], pieces)
        return replace(tape, source=text, output=self.target.decode(best.tokens))

    def region_attention(self, picture: str, **options: Any) -> RegionAttention:
        """Caption one image, a path or pixels as text, and return which regions were attended to for each word."""
        side = self.model.image_size
        if side is None:
            raise SettingsError("this model does not read pictures; inspect a captioner")
        maps = self.attention(picture, **options)
        pixels = decode_pixels(maps.source, side)
        if self.images is not None and is_image_path(picture):
            pixels = self.images.display(picture)
        return region_attention_of(self.model, maps, colours(maps.source_pieces, side), pixels)

    def _exclusive(self) -> AbstractContextManager[None]:
        return self.engine.exclusive()

    @property
    def _written(self) -> AnyTokenizer:
        return self.target

    def prepare(
        self,
        text: str,
        prefix: str | Sequence[int] = (),
        constraints: Constraints | None = None,
        languages: LanguagePrefix | None = None,
        **options: Any,
    ) -> Subject:
        """Prepare a text; of one longer than the model reads at once, which is counted as split, the first segment.

        `languages` is made by `languages.prefix`, by default of the languages that are selected.
        """
        text = checked_text(text, "the text")
        if isinstance(prefix, str):
            prefix = self.constraints(Constraints(prefixes=prefix)).next_prefix() if prefix else []
        (text,) = self.read_images([text])
        (tokens,) = self._segmenter.encode([text])
        languages = languages or self.languages.prefix()
        begun = Sentence(text, prefix=prefix_tokens(prefix, self.target), languages=languages)
        segment, *others = self._segmenter.cut(begun, tokens)
        words = segment.words(self.source.words_of(text))
        if others:
            self.counts.split += 1
            text = self._segmenter.text_read(text, segment)
        request = segment.request(0, self.options(**options), self.constraints(constraints))
        return Subject(text, request, self.source, self.target, words, len(languages.target))

    def decode(self, text: str, **options: Any) -> ForcedDecoding:
        """Translate a text, and return what is replayed; options are those of `attention`."""
        subject = self.prepare(text, **options)
        return subject.force(self._best(subject.request))

    def _sampled(self, text: str) -> Iterator[SampledMaps]:
        subject = self.prepare(text)
        best = self._best(subject.request)
        target_words = self.target.words(best.tokens)
        with self.engine.exclusive():
            maps = forced_attention(self.model, subject.force(best))
        (links,) = self.align_tokens([(subject.request.source, subject.words)], [(best.tokens, target_words)])
        ends = self.source.pieces([self.source.end])[0], self.target.pieces([self.target.end])[0]
        return sample_maps(maps, links or (), subject.words, target_words, ends)

    def _best(self, request: Request) -> Hypothesis:
        return self.engine.translate([request])[0][0]
