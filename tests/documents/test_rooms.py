"""Small rooms, as CONTRIBUTING.md says: files that can be read at a sitting, functions that can be seen at a glance."""

from __future__ import annotations

import ast
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FILES = [path for folder in ("src", "tests", "bench") for path in sorted((PROJECT / folder).rglob("*.py"))]
LONGEST_FILE, LONGEST_FUNCTION = 400, 60


def test_no_file_is_too_long() -> None:
    sizes = {path.relative_to(PROJECT).as_posix(): len(path.read_text().splitlines()) for path in FILES}
    assert len(sizes) > 300
    assert {name: size for name, size in sizes.items() if size > LONGEST_FILE} == {}


def test_no_function_is_too_long() -> None:
    found = {
        f"{path.relative_to(PROJECT).as_posix()}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(found) > 2000
    assert {name: size for name, size in found.items() if size > LONGEST_FUNCTION} == {}
