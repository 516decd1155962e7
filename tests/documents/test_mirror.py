"""`tests/unit` mirrors `src/transduce`: the tests of a module are found by its name."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, UNIT = ROOT / "src/transduce", ROOT / "tests/unit"
WHOLE_PACKAGE = {"test_imports.py", "test_layers.py", "serving/api/test_clients.py"}
"""Tests of a package as a whole."""


def has_module(test: Path) -> bool:
    """Whether `<folder>/test_<module>[_<topic>].py` has its module, or package, in the same folder of the source."""
    folder, words = SOURCE / test.parent, test.stem.split("_")[1:]
    names = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
    return any(
        (folder / file).exists() for name in names for file in (f"{name}.py", f"{name}_.py", f"{name}/__init__.py")
    )


def test_every_unit_test_has_its_module() -> None:
    tests = [path.relative_to(UNIT) for path in sorted(UNIT.rglob("test_*.py"))]
    assert len(tests) > 100
    assert [str(test) for test in tests if str(test) not in WHOLE_PACKAGE and not has_module(test)] == []
