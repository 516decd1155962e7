"""The layout stays readable: files of one thought, functions within a screen, no basename in every folder."""

from __future__ import annotations

import ast
from collections import Counter

from tests.documents.markdown import ROOT

FILES = [path for folder in ("src", "tests", "bench", "docs") for path in sorted((ROOT / folder).rglob("*.py"))]
LONGEST_FILE, LONGEST_FUNCTION = 450, 60
REPEATED_IN = {"tasks", "cli"}
"""Folders with one module per task or command, whose modules may be named alike."""


def test_no_file_is_longer_than_450_lines() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert len(sizes) > 300
    assert {name: size for name, size in sizes.items() if size > LONGEST_FILE} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(found) > 2000
    assert {name: size for name, size in found.items() if size > LONGEST_FUNCTION} == {}


def test_no_basename_occurs_more_than_twice() -> None:
    package = ROOT / "src" / "transduce"
    modules = [path.relative_to(package) for path in package.rglob("*.py") if path.stem != "__init__"]
    assert len(modules) > 100
    named = Counter(module.name for module in modules if module.parts[0] not in REPEATED_IN)
    assert {name: number for name, number in named.items() if number > 2} == {}
