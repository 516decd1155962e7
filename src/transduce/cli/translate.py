"""`transduce translate`: lines or documents; one line in, one line out, in the same order."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.cluster import check_cluster, cluster_options, translate_in_blocks
from transduce.cli.options import (
    SAMPLING,
    SEARCH,
    check_exclusive,
    coverage_option,
    device_option,
    file_argument,
    is_given,
    language_options,
    make_command,
    model_argument,
    option_group,
    place,
    search_method,
    search_options,
)
from transduce.cli.terminal import detail, note

if TYPE_CHECKING:
    from transduce.inference.jobs.job import JobOptions, TranslationJob
    from transduce.inference.segment import TranslationCounts
    from transduce.inference.translator import Translator
    from transduce.text.document.formats import DocumentKind
    from transduce.text.document.segment import DocumentOptions

_EXAMPLES = """
transduce translate runs/demo words.txt --output pronunciations.txt
cat input.txt | transduce translate runs/de-en > output.txt
echo "hello" | transduce translate runs/demo --beam-size 8 --n-best 3
echo "hello" | transduce translate runs/demo --sample --top-p 0.9 --seed 1 --n-best 5
transduce translate runs/de-en film.srt --output film.en.srt
transduce translate runs/de-en page.html --output page.en.html
transduce translate runs/de-en strings.xlf --output strings.en.xlf
transduce translate runs/de-en rows.csv --field title --field text --output rows.en.csv
transduce translate runs/inflection words.tsv --source-column lemma --source-column features --target-column form
transduce translate runs/many input.txt --target-language de
transduce translate runs/captions pictures.txt --image-folder photos
transduce translate runs/en-de input.en --term bank=Ufer --placeholders
transduce translate runs/de-en big.txt.gz --precision int8 --shortlist runs/de-en/shortlist.safetensors --output out.gz
transduce translate runs/de-en big.txt --output out.txt --shard 3/20
transduce translate runs/de-en big.txt --output out.txt --ray auto
"""

FORMATS = (
    *("text", "tsv", "csv", "jsonl", "json", "srt", "vtt", "po", "xliff", "tmx", "html", "markdown", "android"),
    *("properties", "strings"),
)
"""The formats of `text.document.formats`, which is imported only to run the command."""

_SELECTS_SEARCH = ("greedy", "beam_size", "sample", "temperature", "top_k", "top_p", "min_p", "mbr")
"""Options that select a search method, besides `--seed`, of which few expect it."""
_document = option_group("Document options")
_model = option_group("Model options")
_constraint = option_group("Constraint options")
_engine = option_group("Engine options")


@make_command(_EXAMPLES)
@model_argument
@file_argument
@_document("--output", default="-", metavar="FILE", help="Output file; .gz compresses (default: standard output).")
@_document(
    "--format",
    type=click.Choice(FORMATS),
    metavar="NAME",
    help=f"Format of FILE: {', '.join(FORMATS)} (default: by its name or content).",
)
@_document(
    "--field",
    multiple=True,
    metavar="N|NAME",
    help="Column of TSV or CSV, or key of JSONL or JSON, to translate in place (repeatable).",
)
@_document(
    "--source-column",
    multiple=True,
    metavar="N|NAME",
    help="Column or key of the source; several are joined (repeatable).",
)
@_document("--target-column", metavar="N|NAME", help="Column or key for the translation; a new one is appended.")
@_document(
    "--separator", metavar="TEXT", default=" ", help="Separator between joined source columns (default: a space)."
)
@_document("--header/--no-header", default=None, help="Whether the first row of TSV or CSV names columns.")
@_document("--target-language-field", metavar="N|NAME", help="Column or key with the target language of each line.")
@_document("--retranslate", is_flag=True, help="Replace existing translations of PO, XLIFF and TMX files.")
@_document(
    "--image-folder", metavar="FOLDER", help="Folder of the images that FILE lists, for a captioner (default: FILE's)."
)
@_document("--align", is_flag=True, help="Append word alignments as `text ||| 0-0 1-2` (source-target).")
@_document("--stream", is_flag=True, help="Print each translation while it is being generated.")
@_document("--no-split", is_flag=True, help="Do not split lines into sentences.")
@language_options
@_model("--ensemble", multiple=True, metavar="MODEL", help="Average the probabilities with this model (repeatable).")
@search_options("length of the source + 50", "Print the N best translations as `line ||| text ||| score`.")
@coverage_option
@option_group(SAMPLING)(
    "--mbr", type=click.IntRange(2, 256), metavar="N", help="Minimum Bayes risk decoding over N samples."
)
@_constraint("--prefix", metavar="TEXT", help="Begin every translation with TEXT.")
@_constraint("--prefix-file", metavar="FILE", help="Begin translation N with line N of FILE.")
@_constraint(
    "--term", multiple=True, metavar="WORD[=TRANSLATION]", help="Translate WORD like this, or copy it (repeatable)."
)
@_constraint("--terms", metavar="FILE", help="Glossary of such terms: word, tab, translation.")
@_constraint(
    "--placeholders",
    is_flag=True,
    help="Copy {name}, %s, <tags> and URLs unchanged; always on for documents, except TSV, CSV and JSONL.",
)
@_constraint("--keep", multiple=True, metavar="REGEX", help="Copy whatever matches REGEX unchanged (repeatable).")
@_engine(
    "--engine",
    type=click.Choice(["auto", "torch", "ctranslate2"]),
    default="auto",
    show_default=True,
    help="Inference engine; auto takes CTranslate2 where it gives the same translations.",
)
@_engine(
    "--precision",
    type=click.Choice(["float32", "int8"]),
    default="float32",
    show_default=True,
    help="int8 is faster, with nearly the same quality, with either engine.",
)
@device_option("Engine options")
@_engine(
    "--shortlist", metavar="FILE", help="Restrict the output vocabulary to this shortlist; see `transduce shortlist`."
)
@_engine(
    "--workers", type=click.IntRange(1, 1024), metavar="N", help="Number of CTranslate2 workers (default: the fastest)."
)
@_engine(
    "--threads",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Threads per worker, or of PyTorch (default: the fastest).",
)
@cluster_options
def command(run: str, file: str, output: str, n_best: int | None, **options: Any) -> None:
    """Translate FILE, or standard input, with MODEL, a run or model folder.

    Each input line gives one output line, in the same order; empty lines stay empty. Lines with several sentences are
    translated sentence by sentence, and texts longer than the model's maximum in parts. In documents (subtitles,
    message catalogues, XLIFF, TMX, HTML, Markdown, tables, …) only the text is translated; everything else is kept
    byte for byte. For a captioner, lines are paths of PNG or JPEG files, or pixels as text. A file-to-file translation
    that was interrupted resumes when the same command is run again.
    """
    from transduce.storage.filesystem import check_not_input
    from transduce.text.document.formats import detect_kind

    _check_options(n_best, output, options)
    if [file, options["terms"], options["prefix_file"]].count("-") > 1:
        raise click.UsageError("standard input can be used for only one of FILE, --terms and --prefix-file")
    check_not_input(output, file, options["terms"], options["prefix_file"])
    kind = options["format"] or detect_kind(file)
    if kind != "text" and (n_best is not None or any(options[name] for name in ("prefix_file", "align", "stream"))):
        raise click.UsageError(f"--n-best, --prefix-file, --align and --stream need plain text, not {kind}")
    check_cluster(file, kind, output, options)
    options = {"run": run, "n_best": n_best, **options}
    if options["shard"] is not None or options["ray"] is not None:
        counts = translate_in_blocks(file, output, options)
        if counts.lines or options["shard"] is None:  # a shard may have no work
            summarise(counts)
        return
    job = make_job(file, kind, options)
    if options["stream"]:
        _stream(job, file)
    else:
        _bulk(job, output, options)


def make_job(file: str, kind: DocumentKind, options: dict[str, Any]) -> TranslationJob:
    """Load the model and resolve the options."""
    from transduce.inference.jobs.job import TranslationJob

    return TranslationJob.of(_translator(file, kind, options), _job_options(file, kind, options))


def _translator(file: str, kind: str, options: dict[str, Any]) -> Translator:
    """Load the model, with its languages, device and shortlist.

    With a model of one language pair, languages name the variants of a TMX or XLIFF file.
    """
    from transduce.inference.load import load_translator

    translator = load_translator(options["run"], *options["ensemble"])
    if translator.languages.tags is not None or kind not in ("tmx", "xliff"):
        translator.languages.select(options["target_language"], options["source_language"])
    translator.read_images_from(options["image_folder"], file)
    device = place(translator.model, options["device"], options["run"])
    if device == "mps" and options["engine"] == "ctranslate2":
        raise click.UsageError("--device mps is for PyTorch; CTranslate2 has the CPU and CUDA")
    if device != "cpu" and options["workers"] is not None:
        raise click.UsageError(f"--workers divides a CPU; leave it out with --device {device}")
    translator.use_shortlist(options["shortlist"])
    return translator


def _job_options(file: str, kind: DocumentKind, options: dict[str, Any]) -> JobOptions:
    from transduce.inference.jobs.job import JobOptions
    from transduce.text.constraint import Constraints, read_terms
    from transduce.text.corpus import read_lines

    constraints = Constraints(
        prefixes=read_lines(options["prefix_file"]) if options["prefix_file"] else options["prefix"] or (),
        forbid=options["forbid"],
        terms=read_terms(options["term"], options["terms"]),
        keep=options["keep"],
        stop_at=options["stop_at"],
    )
    return JobOptions(
        kind,
        {"method": search_method(options), **{name: options[name] for name in SEARCH}},
        options["n_best"],
        options["mbr"],
        constraints,
        options["placeholders"],
        split=not options["no_split"],
        align=options["align"],
        has_languages=options["target_language_field"] is not None,
        engine="torch" if options["stream"] else options["engine"],
        quantization=options["precision"],
        workers=options["workers"],
        threads=options["threads"],
        document=file,
    )


def _wants_ctranslate2(options: dict[str, Any]) -> bool:
    """Whether the user should know what PyTorch did instead."""
    in_int8 = options["precision"] == "int8" and options["engine"] == "auto"
    return in_int8 or options["engine"] == "ctranslate2" or options["workers"] is not None


def _stream(job: TranslationJob, file: str) -> None:
    """Print translations while they are generated."""
    from transduce.inference.segment import one_line
    from transduce.text.lines import read_lines, shown

    translation = job.translation
    for number, line in enumerate(read_lines(file), start=1):
        (source,) = job.translator.read_images([line], [f"{shown(file)}:{number}"])
        for piece in job.translator.stream(source, translation.search, translation.constraints, translation.split):
            click.echo(one_line(piece), nl=False)
            sys.stdout.flush()
        click.echo()
    translation.constraints.check_all_used()


def _bulk(job: TranslationJob, output: str, options: dict[str, Any]) -> None:
    """Translate window by window, then print a summary."""
    from transduce.cli.progress import following
    from transduce.inference.jobs.job import run_job
    from transduce.inference.jobs.output import fingerprint, open_output
    from transduce.inference.jobs.source import Source, is_file
    from transduce.text.document.formats import BILINGUAL

    if job.is_approximate:
        search = job.translation.search
        rules = f"--length-normalization {search.length_normalization} --stop-rule {search.stop_rule}"
        note(f"CTranslate2 lacks this model's beam search; it uses {rules}")
    file, kind, engine = job.options.document, job.options.format, job.translator.engine
    certain = options["format"] is not None or kind != "text"
    source = Source.open(file, kind if certain else None, _document_options(job, options))
    shown = output == "-" and sys.stdout.isatty()  # the translations show the progress
    size = Path(file).stat().st_size if is_file(file) and not shown else None
    given = fingerprint(options, engine.uses_ctranslate2(job.translation.search))
    with (
        open_output(file, output, given, _note_partial) as sink,
        following(size, "line" if kind in ("text", "tsv", "csv", "jsonl") else "block") as follower,
    ):
        counts = run_job(job, source, sink, follower, file)
    if engine.fallbacks and _wants_ctranslate2(options):
        note(f"texts translated by PyTorch instead of CTranslate2: {engine.fallbacks:,} ({engine.fallback_reason})")
    detail(f"engine: {'CTranslate2' if job.uses_ctranslate2 else 'PyTorch'} in {options['precision']}")
    if sink.done.segments and not counts.lines:
        done = "; texts that have a translation are kept, --retranslate replaces them" if kind in BILINGUAL else ""
        note(f"there is no text to translate, so the output is a copy of the input{done}")
    else:
        summarise(counts)


def _document_options(job: TranslationJob, options: dict[str, Any]) -> DocumentOptions:
    """Return how the document is read and written; its languages are those of the model unless given."""
    from transduce.text.document.segment import DocumentOptions

    languages = job.translator.languages
    return DocumentOptions(
        options["field"],
        options["source_column"],
        options["target_column"],
        options["separator"],
        options["target_language_field"],
        options["header"],
        options["source_language"] or languages.source,
        options["target_language"] or languages.target,
        options["retranslate"],
    )


def _note_partial(path: Path) -> None:
    note(f"the translations so far are in {path}; run the same command again to resume")


def _check_options(n_best: int | None, output: str, options: dict[str, Any]) -> None:
    """Reject options that contradict each other."""
    given = {**options, "n_best": n_best, "output": None if output == "-" else output}
    given |= {"engine ctranslate2": options["engine"] == "ctranslate2", "engine torch": options["engine"] == "torch"}
    search_method(given)
    if options["seed"] is not None and not any(is_given(options[name]) for name in _SELECTS_SEARCH):
        note("--seed selects sampling; leave it out for beam search, which is not random")
    if n_best is not None and n_best < 1:
        raise click.UsageError(f"--n-best {n_best}: must be at least 1")
    check_exclusive(given, "prefix", "prefix_file")
    check_exclusive(given, "mbr", "greedy", "beam_size")
    if options["mbr"] is not None and (n_best or 1) > options["mbr"]:
        raise click.UsageError(f"--n-best {n_best} needs at least as many samples; raise --mbr {options['mbr']}")
    check_exclusive(given, "align", "placeholders", "keep", "mbr")
    check_exclusive(given, "stream", "n_best", "mbr", "align", "keep", "placeholders", "output", "field")
    check_exclusive(given, "field", "source_column", "target_column")
    check_exclusive(given, "stream", "target_language_field", "threads", "engine ctranslate2", "workers")
    check_exclusive(given, "engine torch", "workers")


def summarise(counts: TranslationCounts) -> None:
    """Print what a user should know about the lines of a file."""
    if not counts.lines:
        note("the input is empty, and so is the output")
    notes = {
        "empty lines": counts.empty,
        "lines without a token, left empty": counts.unread,
        "lines split into sentences": counts.several,
        "lines longer than the model's maximum, translated in parts": counts.split,
        "translations cut off at the maximum length": counts.cut,
        "translations that contain a forbidden word, in other tokens": counts.forbidden,
        "translations that lack a given term": counts.missing,
        "unknown source tokens": counts.unknown,
    }
    for what, count in notes.items():
        if count:
            note(f"{what}: {count:,} ({counts.lines:,} lines in total)")
