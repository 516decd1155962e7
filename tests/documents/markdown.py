"""Reading the documents: their files, fenced blocks, links, and the commands that they show."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_QUOTED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"(?:src|tests|docs|\.ci)/[\w./-]*\w")


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str


def name(path: Path) -> str:
    """How pytest calls a document."""
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    found = map(Block._make, _FENCE.findall(path.read_text(encoding="utf-8")))
    return [block.text for block in found if block.language == language]


def prose(path: Path) -> str:
    """Return a document without its fenced blocks."""
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def links(path: Path) -> list[str]:
    """Return what a document links to within the project."""
    return [link for link in _LINK.findall(prose(path)) if "://" not in link]


def paths_named(path: Path) -> list[str]:
    """Return the files of the project that a document names in backquotes, from the project's root."""
    return [quoted for quoted in _QUOTED.findall(prose(path)) if _PATH.fullmatch(quoted)]


def commands(path: Path) -> list[list[str]]:
    """Return every command in a document's shell blocks as words: comments, redirections and pipes taken apart."""
    found = []
    for line in "\n".join(blocks(path, "sh")).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("|") if "|" in words else len(words)
            command, words = words[:end], words[end + 1 :]
            if ">" in command:
                command = command[: command.index(">")]
            found.append(command)
    return found


def load_script(path: str) -> ModuleType:
    """Import a program of the repository that is in no package, such as `docs/generate_reference.py`."""
    name = Path(path).stem
    specification = importlib.util.spec_from_file_location(name, ROOT / path)
    assert specification is not None and specification.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
