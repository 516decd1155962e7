"""What users read, collected from the program, and the phrases that must not occur in it.

`python -m tests.documents.words` prints every occurrence; with `--docstrings`, also those in docstrings and comments,
which no test checks.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import pkgutil
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

import transduce
from transduce.cli import main as command_line
from transduce.config import Config

SOURCE = Path(transduce.__file__).parent
ROOT_COMMAND = next(value for value in vars(command_line).values() if isinstance(value, click.Group))
PHRASES = {
    r"norms? in front|norms? behind": "pre-norm, post-norm",
    r"openings?|answer(s|ed|ing)?": "hypothesis, translation, prediction",
    r"wish(es)?|choosers?|cohorts?": "option, strategy, batch group",
    r"way of (searching|choosing)|which way": "search key",
    r"readers?|stor(y|ies)": "text encoder, context",
    r"look(s|ed|ing)? (at|inside)|glances?|heard|listen(s|ing)?|taps?": "attend, attention map, hook",
    r"bends?|bent|widens?|narrows?|merges?": "activation, up, down, out_proj",
    r"slices?": "micro-batch",
    r"first values|(from|by) chance": "initialisation, random initialisation",
    r"(go|goes|going|gone|went) on": "resume, continue, extend",
    r"starting from what exists|origins?|held still": "fine-tuning, initial checkpoint, frozen",
    r"(run|runs|ran) away|by heart": "diverge, memorise",
    r"keepers?|thin(s|ned)? out|seal(s|ed)?|aside|facts?": "checkpoint manager, prune, manifest, fingerprint",
    r"longest that a gradient may be": "maximum gradient norm",
    r"rooms?|houses?|walks?|laws?|refusals?|sayings?": "modules, layout, tour, invariants, validation errors",
    r"said|told|ask(s|ed)? for|in silence": "logged or printed, given, requested, silently",
    r"beside others|ours over theirs|missed its aim": "benchmarks, ratio to baseline, below target",
    r"refuse[sd]?": "reject",
    r"usual(ly)?": "default",
    r"so many|a person|people": "the number, a user",
}
"""Phrases that only this project would use, and what to write instead."""

ALLOWED = [
    (r"", r"no[_ ]answer|question answering", "SQuAD's task, and a class of SQuAD 2"),
    (r"", r"tags?(,| or) answers?", "the objectives of text encoders: extractive question answering has answers"),
    (r"text_encod|memory_network|models|data.report|predict", r"answers?", "the same"),
    (r"tokenizer|huggingface|bpe_dropout", r"merges?", "byte-pair encoding has merges"),
    (r"^transduce --help|merge|cluster|translate|main", r"[Mm]erges?", "the command that merges shards"),
    (r"document/(html|markdown)", r"aside", "an element of HTML"),
    (r"", r"bAbI stor(y|ies)", "bAbI's tasks are stories"),
    (
        r"memory_network|text_encod",
        r"(supporting )?facts?",
        "Weston et al. 2015 call the sentences of a bAbI story facts",
    ),
]
"""Legitimate uses: where, what, and why."""

_FORBIDDEN = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES), re.IGNORECASE)


class Text(NamedTuple):
    """Something that a user reads."""

    where: str
    text: str

    def faults(self) -> list[str]:
        """Each forbidden phrase in it, with its surroundings."""
        text = " ".join(self.text.split())
        for where, phrase, _ in ALLOWED:
            text = re.sub(rf"\b(?:{phrase})\b", "", text) if re.search(where, self.where) else text
        return [f"{self.where}: …{text[max(0, m.start() - 30) : m.end() + 30]}…" for m in _FORBIDDEN.finditer(text)]


def help_texts(command: click.Command = ROOT_COMMAND, name: str = "transduce") -> Iterator[Text]:
    """The `--help` page of a command and of every command below it."""
    context = click.Context(command, info_name=name)
    yield Text(f"{name} --help", command.get_help(context))
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from help_texts(found, f"{name} {sub}")


def settings_texts() -> Iterator[Text]:
    """The docstring of every setting, where it is defined."""
    for module in pkgutil.walk_packages([str(SOURCE)], "transduce."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for config in _below(Config):
        descriptions = config.descriptions()
        for name in sorted(inspect.get_annotations(config).keys() & config.model_fields.keys()):
            yield Text(f"{config.__module__}.{config.__name__}.{name}", descriptions.get(name, ""))


def _below(config: type[Config]) -> Iterator[type[Config]]:
    for child in config.__subclasses__():
        yield child
        yield from _below(child)


def messages(path: Path, source: str | None = None) -> Iterator[Text]:
    """Every string of a module but its docstrings: errors, warnings, printed lines, help texts.

    The parts of a message that are computed are left out; a string without a space is a name, not a message.
    """
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in docstrings or id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield Text(f"{path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else path}:{node.lineno}", text)


def docstrings_and_comments(path: Path) -> Iterator[Text]:
    """What only developers read."""
    source, name = path.read_text(encoding="utf-8"), path.relative_to(SOURCE)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text(f"{name}:{node.lineno}", node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(f"{name}:{token.start[0]}", token.string)


def modules() -> list[Path]:
    """Every file of the program."""
    return sorted(SOURCE.rglob("*.py"))


def main() -> None:
    """Print every fault, then the number in each top folder."""
    found = [*help_texts(), *settings_texts(), *(text for path in modules() for text in messages(path))]
    if "--docstrings" in sys.argv:
        found = [text for path in modules() for text in docstrings_and_comments(path)]
    faults = [fault for text in found for fault in text.faults()]
    print("\n".join(faults))
    counts: dict[str, int] = {}
    for fault in faults:
        place = fault.split(":")[0].split("/")[0]
        counts[place] = counts.get(place, 0) + 1
    print(*(f"{count:5} {place}" for place, count in sorted(counts.items())), sep="\n")


if __name__ == "__main__":
    main()
