"""`transduce translate` imports what it needs and no more: a list, as a time could not be tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NEEDLESS = (
    *("sacrebleu", "transformers", "matplotlib", "PIL", "starlette", "uvicorn", "sympy", "lxml", "pandas"),
    *("torch._dynamo", "torch._inductor", "pydantic.v1", "rich.progress"),
    *("transduce.data", "transduce.tasks", "transduce.recipe", "transduce.training.trainer", "transduce.evaluation"),
    *("transduce.interop", "transduce.serving", "transduce.experiments"),
)


def test_translating_a_line_imports_nothing_that_it_does_not_need(place: Path) -> None:
    code = (
        "import sys; from transduce.cli.main import run\n"
        "assert run(['translate', 'run']) == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="a b c\n", cwd=place, check=True, capture_output=True, text=True
    )
    imported = set(done.stderr.split())
    assert done.stdout.count("\n") == 1
    assert {"torch", "transduce.inference.translator"} <= imported
    assert not imported.intersection(NEEDLESS)
