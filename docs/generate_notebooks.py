"""Write a notebook for every tutorial: Python and shell blocks become cells to run, everything else text.

    python docs/generate_notebooks.py          (or: make reference)

The Markdown is what is edited; a test checks that the notebooks are current, and executes them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

TUTORIALS = [path for path in sorted((Path(__file__).parent / "tutorials").glob("*.md")) if path.stem != "index"]
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook(tutorial: Path) -> str:
    """Return the notebook of a tutorial as JSON (nbformat 4.5), without outputs."""
    cells: list[dict[str, Any]] = []
    text, end = tutorial.read_text(encoding="utf-8"), 0
    for block in _BLOCK.finditer(text):
        _add(cells, "markdown", text[end : block.start()])
        _add(cells, "code", ("%%bash\n" if block[1] == "sh" else "") + block[2])
        end = block.end()
    _add(cells, "markdown", text[end:])
    contents = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(contents, ensure_ascii=False, indent=1) + "\n"


def _add(cells: list[dict[str, Any]], kind: str, source: str) -> None:
    if source.strip():
        cell = {
            "cell_type": kind,
            "id": f"cell-{len(cells)}",
            "metadata": {},
            "source": source.strip().splitlines(True),
        }
        cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))


def main() -> None:
    """Write all notebooks."""
    for tutorial in TUTORIALS:
        tutorial.with_suffix(".ipynb").write_text(notebook(tutorial), encoding="utf-8")
        print(tutorial.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
