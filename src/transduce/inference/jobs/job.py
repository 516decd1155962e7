"""A translation job: translates a document window by window, from its beginning or from where it was interrupted."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from transduce.inference.ctranslate2.engine import Parallelism, available_cores, nearest_options
from transduce.inference.ctranslate2.export import Quantization
from transduce.inference.engine import EngineName
from transduce.inference.jobs.calibration import (
    MAX_SAMPLE,
    apply_parallelism,
    calibrate_job,
    job_default,
    requested_parallelism,
)
from transduce.inference.jobs.source import DocumentWindow, Source, is_file
from transduce.inference.scoring import consensus
from transduce.inference.segment import Translation, TranslationCounts, TranslationOptions, one_line
from transduce.inference.translator import NO_CONSTRAINTS, Translator
from transduce.text.alignment import pharaoh
from transduce.text.constraint import DEFAULT_PLACEHOLDERS, Constraints
from transduce.text.document.formats import MARKED_UP, DocumentKind
from transduce.text.lines import STDIN, shown

if TYPE_CHECKING:
    from transduce.inference.jobs.output import Done

TORCH_WINDOW = 512
"""Lines of a window for PyTorch: some seconds of work, which is what an interruption costs."""
CTRANSLATE2_WINDOW = (1024, 8192)
"""Minimum and maximum lines of a window for CTranslate2."""
BATCHES_PER_WORKER = 32
"""In a window: enough that the last ones, of mixed lengths, hardly count."""
GZIP_RATIO = 3
"""Approximate size of a gzip file's text relative to the file."""


@dataclass(frozen=True)
class TranslatedWindow:
    """A window after translation."""

    content: bytes
    """What to write."""
    segments: int
    counts: TranslationCounts
    read: int
    """Bytes of the input up to the window's end, approximately."""
    digest: str
    """Of the input up to the window's end."""


@dataclass(frozen=True)
class JobOptions:
    """Options of a job that translates a document."""

    format: DocumentKind = "text"
    """Format of the document."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Search options that override the model's; None keeps one."""
    n_best: int | None = None
    """Translations of each line to list with number and score; None writes the best one in place of the line."""
    mbr: int | None = None
    """Samples for minimum Bayes risk decoding; None for the search alone."""
    constraints: Constraints = NO_CONSTRAINTS
    placeholders: bool = False
    """Whether placeholders and tags are copied; in formats with markup they always are."""
    split: bool = True
    align: bool = False
    """Whether to append the word alignment to each line."""
    has_languages: bool = False
    """Whether the document gives the target language of each text."""
    engine: EngineName = "auto"
    quantization: Quantization = "float32"
    """Of either engine; with `auto` and int8, CTranslate2 if it is installed and supports the model."""
    workers: int | None = None
    """Workers of CTranslate2; None takes what is fastest."""
    threads: int | None = None
    """Threads of each worker, or of PyTorch; None takes what is fastest."""
    document: str = STDIN
    """Path of the document, for errors."""

    def resolve(self, translator: Translator) -> TranslationOptions:
        """Return how a translator translates lines with these options."""
        copied = DEFAULT_PLACEHOLDERS if self.placeholders or self.format in MARKED_UP else ()
        constraints = replace(self.constraints, keep=(*copied, *self.constraints.keep))
        given = {**self.search, "n_best": self.n_best}
        if self.mbr is not None:
            given |= {"n_best": self.mbr, "method": "sample"}
        options = TranslationOptions(
            translator.options(**given), translator.constraints(constraints), self.split, self.align
        )
        return options if self.mbr is None else replace(options, rerank=consensus)


@dataclass(frozen=True)
class TranslationJob:
    """Translates windows with one translator. Several threads may call it at a time unless lines have prefixes."""

    translator: Translator
    options: JobOptions
    translation: TranslationOptions
    """The options, resolved for the translator."""
    is_approximate: bool = False
    """Whether CTranslate2 was requested and its beam search, which is slightly different, replaces the model's."""

    @classmethod
    def of(cls, translator: Translator, options: JobOptions) -> TranslationJob:
        """Resolve the options and select the engine: PyTorch on a GPU, unless CTranslate2 is requested."""
        if not options.has_languages:
            translator.languages.prefix()  # check before anything is read or written
        on_cpu = all(parameter.device.type == "cpu" for parameter in translator.model.parameters())
        engine = options.engine if on_cpu or options.engine != "auto" else "torch"
        if engine == "auto" and options.quantization != "float32" and translator.engine.supports_ctranslate2:
            engine = "ctranslate2"  # translations differ slightly either way
        translator.use(engine, options.quantization)
        job = cls(translator, options, options.resolve(translator))
        return job._with_nearest_search() if engine == "ctranslate2" else job

    def _with_nearest_search(self) -> TranslationJob:
        """Return the job with the beam search of CTranslate2, if only that keeps CTranslate2 from taking it.

        Search options that were given stay.
        """
        given = [name for name, value in self.options.search.items() if value is not None]
        search = nearest_options(self.translation.search, given)
        job = replace(self, translation=replace(self.translation, search=search), is_approximate=True)
        return job if job.uses_ctranslate2 and not self.uses_ctranslate2 else self

    @property
    def uses_ctranslate2(self) -> bool:
        """Whether CTranslate2 takes most lines; with terms, many lines may have one."""
        constraints = self.translation.constraints
        prefixed = self.options.constraints.has_prefixes or self.translator.languages.target_prefix_length
        if prefixed or constraints.stops or constraints.has_terms:
            return False
        return self.translator.engine.uses_ctranslate2(self.translation.search)

    @property
    def can_calibrate(self) -> bool:
        """Whether lines of the document can be tried: trials have no prefixes, languages or image files."""
        options = self.options
        return not (options.constraints.has_prefixes or options.has_languages or self.translator.images is not None)

    def __call__(self, window: DocumentWindow) -> TranslatedWindow:
        """Translate one window."""
        counts = TranslationCounts()
        languages = [self.translator.languages.prefix(language) for language in window.languages]
        translate = self.translator.translate_lines
        texts = self.read_images(window)
        found = iter(translate(texts, self.translation, counts, languages) if texts else ())
        written = []
        for number, segment in enumerate(window.segments, start=window.first):
            translations = [next(found) for _ in segment.texts]
            if self.options.n_best is None:
                pairs = zip(translations, segment.texts, strict=True)
                written.append(segment.write([self._line(several[0], source) for several, source in pairs]))
            elif translations:
                written += [self._numbered(number, one) for one in translations[0][: self.options.n_best]]
        content = window.encode("".join(written))
        return TranslatedWindow(content, len(window.segments), counts, window.read, window.digest)

    def read_images(self, window: DocumentWindow) -> list[str]:
        """Return the texts of a window, with the pixels of images in place of their paths; errors name the line."""
        name = shown(self.options.document)
        numbers = [number for number, segment in enumerate(window.segments, window.first + 1) for _ in segment.texts]
        return self.translator.read_images(window.texts, [f"{name}:{number}" for number in numbers])

    def _line(self, translation: Translation, source: str) -> str:
        return one_line(translation.text, source) + self._alignment(translation)

    def _numbered(self, number: int, translation: Translation) -> str:
        """A line of an n-best list, in Moses's format."""
        text, links = one_line(translation.text), self._alignment(translation)
        return f"{number} ||| {text} ||| {translation.score:.4f}{links}\n"

    def _alignment(self, translation: Translation) -> str:
        return f" ||| {pharaoh(translation.links)}" if self.options.align else ""


class Sink(Protocol):
    """Receives the windows, in order."""

    done: Done

    def check_input(self, digest: str) -> None: ...
    def begin(self, parallelism: Parallelism) -> None: ...
    def write(self, window: TranslatedWindow) -> None: ...


class Observer(Protocol):
    """Is notified of progress."""

    def resumed(self, segments: int) -> None: ...
    def calibrated(self, parallelism: Parallelism, ctranslate2: bool) -> None: ...
    def started(self, read: int) -> None: ...
    def wrote(self, lines: int, read: int) -> None: ...


def run_job(
    job: TranslationJob,
    source: Source,
    sink: Sink,
    observer: Observer,
    path: str,
    parallelism: Parallelism | None = None,
) -> TranslationCounts:
    """Translate what is left of a document; return the counts of all its lines.

    `parallelism` is what an earlier job of this process found to be the fastest. Input that is not a file is translated
    as it comes. With CTranslate2 two windows of a file are in progress, so that its workers do not run dry at the end
    of the first; with PyTorch one, on which all threads work.
    """
    sink.check_input(source.skip(sink.done.segments))
    job.translation.constraints.skip(sink.done.counts.lines)
    if sink.done.segments:
        observer.resumed(sink.done.segments)
    with _threads_as_before():
        parallelism = _parallelism(job, source, sink.done.parallelism or parallelism, observer, path)
        sink.begin(parallelism)
        observer.started(source.read)
        with contextlib.closing(_translated(job, source, parallelism, is_file(path))) as windows:
            for window in windows:
                sink.write(window)
                observer.wrote(window.counts.lines, window.read)
    job.translation.constraints.check_all_used()
    return sink.done.counts


def _translated(
    job: TranslationJob, source: Source, parallelism: Parallelism, whole: bool
) -> Generator[TranslatedWindow]:
    if not whole:
        return (job(window) for window in source.windows_as_they_come())
    windows = source.windows(window_lines(parallelism, job.uses_ctranslate2))
    return in_order(job, windows, threads=2 if job.uses_ctranslate2 else 1)


def window_lines(parallelism: Parallelism, ctranslate2: bool) -> int:
    """Lines of a window: enough for all workers, and not more than an interruption may cost."""
    fewest, most = CTRANSLATE2_WINDOW
    wanted = BATCHES_PER_WORKER * parallelism.workers * parallelism.batch_size
    return min(most, max(fewest, wanted)) if ctranslate2 else TORCH_WINDOW


def _parallelism(
    job: TranslationJob, source: Source, before: Parallelism | None, observer: Observer, path: str
) -> Parallelism:
    """As requested, or as before an interruption, or for a file whatever is fastest."""
    options, ctranslate2 = job.options, job.uses_ctranslate2
    same_machine = before is not None and (not ctranslate2 or before.workers * before.threads == available_cores())
    if options.workers is not None or options.threads is not None:
        parallelism = requested_parallelism(ctranslate2, options.workers, options.threads)
    elif before is not None and same_machine:
        parallelism = before  # the same windows and batches, so bit-identical translations
    elif not (job.can_calibrate and is_file(path)):
        parallelism = job_default(ctranslate2)
    else:
        sample = source.sample(MAX_SAMPLE)
        mean = sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in sample) / max(1, len(sample))
        ratio = GZIP_RATIO if path.endswith(".gz") else 1
        parallelism, tried = calibrate_job(job, sample, Path(path).stat().st_size * ratio / max(1.0, mean))
        if tried:
            observer.calibrated(parallelism, ctranslate2)
        return parallelism
    apply_parallelism(job, parallelism)
    if ctranslate2 and is_file(path):
        job.translator.engine.load()
    return parallelism


@contextlib.contextmanager
def _threads_as_before() -> Iterator[None]:
    """PyTorch's number of threads is the whole process's; leave it as it was."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Parallel windows.

T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Iterator[T], threads: int) -> Generator[R]:
    """Yield `work` of each item, in order; `threads` are in progress, one more waits, and one is read ahead.

    Reading, translating and writing overlap, so that engines do not wait. Each queue is bounded: memory does not depend
    on the length of the file.

    An error of reading is raised after all results of items before it. Closing the generator does not wait for work in
    progress.
    """
    reader = ThreadPoolExecutor(1, thread_name_prefix="reading")
    workers = ThreadPoolExecutor(threads, thread_name_prefix="translating")
    begun: deque[Future[R]] = deque()
    failure: Exception | None = None
    coming: Future[T | None] | None = reader.submit(next, items, None)
    try:
        while coming is not None or begun:
            while coming is not None and len(begun) <= threads:
                try:
                    item = coming.result()
                except Exception as error:
                    failure, item = error, None
                coming = None if item is None else reader.submit(next, items, None)
                if item is not None:
                    begun.append(workers.submit(work, item))
            if begun:
                yield begun.popleft().result()
    finally:
        for pool in (reader, workers):
            pool.shutdown(wait=False, cancel_futures=True)
    if failure is not None:
        raise failure
