"""The options that name corpora: those to train on, and one corpus of pairs to score, align or evaluate on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import option_group
from transduce.cli.terminal import note
from transduce.config import Table
from transduce.errors import SettingsError

if TYPE_CHECKING:
    from transduce.inference.translator import Translator
    from transduce.text.corpus import CorpusFiles, Pair

FORMATS = ("tsv", "csv", "jsonl", "tmx", "xliff", "po")
"""Formats of a file with both sides."""
FILE_SETTINGS = {
    "path_format": "format",
    "source_column": "source_column",
    "target_column": "target_column",
    "separator": "separator",
    "header": "header",
}
"""Settings of a file with both sides, by the option."""


def file_options(title: str) -> tuple[Any, ...]:
    """Return the options for a file with both sides."""
    option = option_group(title)
    source = "Column or key of the source, by name or number from 1; several are joined (repeatable)."
    header = "Whether the first row of a TSV or CSV names its columns (default: if columns are named)."
    return (
        option(
            "--path-format",
            type=click.Choice(FORMATS),
            metavar="NAME",
            help=f"Format of the file: {', '.join(FORMATS)} (default: by its name).",
        ),
        option("--source-column", multiple=True, metavar="N|NAME", help=source),
        option("--target-column", metavar="N|NAME", help="Column or key of the target."),
        option("--separator", metavar="TEXT", help="Separator between joined source columns (default: a space)."),
        option("--header/--no-header", default=None, help=header),
    )


def file_settings(options: dict[str, Any]) -> Table:
    """Return the settings that `file_options` give, as those of `CorpusFiles`."""
    found = {setting: options[name] for name, setting in FILE_SETTINGS.items() if options[name] not in (None, ())}
    if "source_column" in found:
        columns = list(found["source_column"])
        found["source_column"] = columns[0] if len(columns) == 1 else columns
    return found


CORPORA = {
    "validation": "Validation corpus, in one of these four forms (default: part of the training corpus).",
    "test": "Test corpus; its pairs are removed from the training corpus.",
    "extra_validation": "Second validation corpus, e.g. from the domain of the initial model, to measure forgetting.",
}
FORMS = ("source", "target", "path", "text")


_LANGUAGES = tuple(
    option_group("Corpus options")(
        f"--{side}-language", metavar="TAG", help=f"Language of the {side}; selects it in a TMX file."
    )
    for side in ("source", "target")
)


def corpus_language_options(function: Any) -> Any:
    """Add `--source-language` and `--target-language` of a corpus."""
    for option in reversed(_LANGUAGES):
        function = option(function)
    return function


def corpus_options(function: Any) -> Any:
    """Add the options that name the corpora; those of the training corpus have no prefix, `--mix` adds more."""
    corpus = option_group("Corpus options")
    options = [
        corpus("--source", "train_source", metavar="FILE", help="Source side of the training corpus."),
        corpus("--target", "train_target", metavar="FILE", help="Target side, with the same number of lines."),
        corpus(
            "--path", "train_path", metavar="FILE", help="Both sides in one TSV, CSV, JSONL, TMX, XLIFF or PO file."
        ),
        corpus("--text", "train_text", metavar="FILE", help="Plain text, for a language model."),
        *file_options("Corpus options"),
        *_LANGUAGES,
    ]
    for name, text in CORPORA.items():
        prefix = f"--{name.replace('_', '-')}"
        for form in FORMS:
            label = f"{prefix}-{{{','.join(FORMS)}}} FILE" if form == FORMS[0] else ""
            options.append(corpus(f"{prefix}-{form}", f"{name}_{form}", metavar="FILE", label=label, help=text))
    further = "Further training corpus: path=more.tsv,weight=0.5 or source=a.de,target=a.en (repeatable)."
    boundary = "With --text: a document ends at a blank line, at each line or at the end of the file (default: blank)."
    options += [
        corpus("--extra-validation", metavar="RUN", help="The same, taken from another run or prepared corpus."),
        corpus("--mix", "mixed", multiple=True, metavar="SETTINGS", help=further),
        corpus("--document", type=click.Choice(["blank", "line", "file"]), help=boundary),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def corpus_tables(options: dict[str, Any]) -> Table:
    """Return the corpora that the options name, as tables of `[data]`."""
    found: Table = {}
    for name in ("train", *CORPORA):
        corpus = {form: options[f"{name}_{form}"] for form in FORMS if options[f"{name}_{form}"]}
        if "text" in corpus and len(corpus) > 1:
            other = next(form for form in FORMS if form in corpus)
            raise SettingsError(
                f"give pairs (--{other}) or plain text (--text), not both; a model learns from one kind"
            )
        if corpus:
            found[name] = corpus
    if options["extra_validation"] is not None:
        if "extra_validation" in found:
            raise SettingsError("give --extra-validation RUN or files with --extra-validation-…, not both")
        found["extra_validation"] = _prepared(options["extra_validation"])
    if options["mixed"]:
        found["train"] = [found["train"]] if "train" in found else []
        found["train"] += [_settings(text) for text in options["mixed"]]
    if options["document"]:
        _set_document(found, options["document"])
    _set_files(found, file_settings(options))
    return found


def corpus_languages(options: dict[str, Any]) -> Table:
    """Return the languages that the options name, as settings of `[data]`."""
    names = ("source_language", "target_language")
    return {name: options[name] for name in names if options[name] is not None}


def _set_files(found: Table, settings: Table) -> None:
    """Set format and columns of every file with both sides that does not set them itself."""
    corpora = [one for given in found.values() for one in (given if isinstance(given, list) else [given])]
    files = [corpus for corpus in corpora if "path" in corpus]
    if settings and not files:
        raise SettingsError("formats and columns are for a file with both sides; name it with --path")
    for corpus in files:
        corpus.update({name: value for name, value in settings.items() if name not in corpus})


def _prepared(folder: str) -> Table | list[Table]:
    """Name the validation pairs of a run or prepared corpus; those of a multilingual one language by language."""
    from transduce.tasks.translation.config import PreparedPairs

    tags = PreparedPairs(prepared=folder).tags()
    one: Table = {"prepared": folder}
    return one if tags is None else [{**one, "target_language": language} for language in tags.languages]


def _set_document(found: Table, rule: str) -> None:
    """Set what ends a document in every file of plain text that does not set it itself."""
    corpora = [one for given in found.values() for one in (given if isinstance(given, list) else [given])]
    texts = [corpus for corpus in corpora if "text" in corpus]
    if not texts:
        raise SettingsError("--document needs plain text; name a file with --text")
    for corpus in texts:
        corpus.setdefault("document", rule)


def _settings(text: str) -> Table:
    """Parse `path=a.tsv,weight=2`."""
    corpus: Table = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"--mix {text}: write path=more.tsv,weight=0.5 or source=a.de,target=a.en")
        corpus[name.strip()] = _number(value) if name.strip() == "weight" else value
    return corpus


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def pair_options(function: Any) -> Any:
    """Add `--source`, `--target`, `--path` and the options for its format: one corpus of pairs."""
    corpus = option_group("Corpus options")
    for option in (
        *reversed(file_options("Corpus options")),
        corpus("--path", metavar="FILE", help="Both in one TSV, CSV, JSONL, TMX, XLIFF or PO file."),
        corpus("--target", metavar="FILE", help="Translations, one per line."),
        corpus("--source", metavar="FILE", help="Sources, one per line."),
    ):
        function = option(function)
    return function


def pair_corpus(options: dict[str, Any]) -> CorpusFiles:
    """Return the corpus that `pair_options` name; print which columns are read where that is not obvious."""
    corpus = _pair_corpus(options)
    note_columns(corpus)
    return corpus


def note_columns(corpus: CorpusFiles) -> None:
    """Print which columns of a table are read, and whether its first row seems to be a header and is read as a pair."""
    from transduce.text.corpus import further_columns

    if corpus.path is not None and Path(corpus.path).is_file() and (found := further_columns(corpus)):
        note(found)


def _pair_corpus(options: dict[str, Any]) -> CorpusFiles:
    from transduce.text.corpus import CorpusFiles

    files = {name: options[name] for name in ("source", "target", "path") if options[name]}
    languages = corpus_languages(options) if options["path"] else {}
    return CorpusFiles.from_table({**files, **file_settings(options), **languages}, "the command line")


def select_languages(translator: Translator, options: dict[str, Any]) -> None:
    """Select the languages of a model; with a model of one language pair, they name those of a TMX or XLIFF file."""
    names_file = options["path"] is not None and _pair_corpus(options).layout in ("tmx", "xliff")
    if translator.languages.tags is not None or not names_file:
        translator.languages.select(options["target_language"], options["source_language"])


class UnusedUnits:
    """Counts the units of a TMX, XLIFF or PO file that are not pairs."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, pair: Pair, reason: str) -> None:
        self._counts[reason] += 1

    def note(self) -> None:
        """Print the counts."""
        from transduce.data.report import REASONS

        for reason, count in self._counts.items():
            note(f"units not used: {count:,} ({REASONS[reason]})")
