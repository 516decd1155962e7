"""Who may import whom: every import in the package is read, and one that points up fails here."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "transduce"

OPEN = {"errors", "rng", "config", "storage"}
"""Modules that every layer may import; among themselves they have lines of their own below."""

INFERENCE = {"evaluation", "inspection", "model_folder", "models", "nn", "text"}
TRAINING = {"inference", "evaluation", "model_folder", "data", "models", "nn", "text"}

LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "rng": set(),
    "config": {"errors"},
    "storage": {"errors", "config"},
    "text": set(),
    "nn": set(),
    "evaluation": set(),
    "data": {"text"},
    "models": {"nn"},
    "model_folder": {"models", "text"},
    "inspection": {"models", "nn"},
    "inference": INFERENCE,
    "interop": {"inference", "model_folder", "models", "text"},
    "training": TRAINING,
    "tasks": {"training", *TRAINING},
    "recipe": {"tasks", "training", *TRAINING},
    "run_setup": {"recipe", "tasks", "training", *TRAINING},
    "run_arguments": {"recipe", "tasks", "training", *TRAINING},
    "run": {"run_arguments", "run_setup", "recipe", "interop", "tasks", "training", *TRAINING},
    "verify_resume": {"run", "recipe", "training"},
    "pipeline": {"run", "recipe", "tasks", "training", *TRAINING},
    "serving": INFERENCE | {"inference"},
    "__init__": {"inference", "interop", "recipe", "run", "text", "training"},
    "__main__": {"cli"},
}
"""Each layer and what it may import besides itself and what is open to all."""
LAYERS["experiments"] = LAYERS.keys() - {"__main__", "serving"}
LAYERS["cli"] = LAYERS.keys() - {"__main__"}

MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def layer_of(module: str) -> str:
    """`nn/hook.py` -> `nn`; `recipe.py` -> `recipe`."""
    return module.split("/")[0].removesuffix(".py")


def imported(module: str, text: str) -> Iterator[tuple[int, str]]:
    """(line, full name) of everything a module imports, also inside functions and for type checkers only."""
    package = ["transduce", *module.split("/")[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            home = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [home, node.module]))
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def target_of(name: str) -> str:
    """`transduce.nn.sublayer.PreNorm` -> `nn`; a public name such as `transduce.load` -> `__init__`."""
    part = [*name.split("."), "__init__"][1]
    return part if (PACKAGE / part).is_dir() or (PACKAGE / f"{part}.py").is_file() else "__init__"


def faults(module: str, text: str) -> list[str]:
    """What this module imports and may not. The version is everybody's; other public names lead to the top."""
    layer = layer_of(module)
    allowed = {layer} | LAYERS[layer] | (set() if layer in OPEN else OPEN)
    return [
        f"{module}:{line} imports {name}"
        for line, name in imported(module, text)
        if name.split(".")[0] == "transduce" and name != "transduce.__version__" and target_of(name) not in allowed
    ]


def read(module: str) -> str:
    return (PACKAGE / module).read_text(encoding="utf-8")


def test_every_module_belongs_to_a_known_layer() -> None:
    assert "nn/hook.py" in MODULES
    assert {layer_of(module) for module in MODULES} - LAYERS.keys() == set(), "say in LAYERS what it may import"


def test_no_import_points_up() -> None:
    known = [module for module in MODULES if layer_of(module) in LAYERS]
    assert [fault for module in known for fault in faults(module, read(module))] == []


def test_text_and_what_is_open_to_all_do_not_import_torch() -> None:
    """Only `rng` has a function that imports it, when it is called."""
    without = [module for module in MODULES if layer_of(module) in {"text", *OPEN, "__init__"}]
    importing = [
        f"{module}:{line}"
        for module in without
        for line, name in imported(module, read(module))
        if name.split(".")[0] == "torch" and module != "rng.py"
    ]
    assert importing == []
    modules = "transduce.rng, transduce.storage.atomic, transduce.text.language"
    script = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_table_itself_has_no_circle() -> None:
    """Taking away layers that import nothing that is left must take away all."""
    left = {layer: set(below) for layer, below in LAYERS.items()}
    while left:
        free = [layer for layer, below in left.items() if not below & left.keys()]
        assert free, f"{sorted(left)} import each other"
        for layer in free:
            del left[layer]


def test_an_import_that_points_up_is_caught_however_it_is_written() -> None:
    for module, line in (
        ("nn/hook.py", "from transduce.models.interface import Memory"),
        ("nn/attention/additive.py", "from ...models import transformer"),
        ("nn/hook.py", "from ..models import transformer"),
        ("text/lines.py", "import transduce.data.order"),
        ("models/transformer.py", "def late():\n    from transduce.training.trainer import Trainer"),
        ("inference/search/beam.py", "if TYPE_CHECKING:\n    from transduce.training.trainer import Trainer"),
        ("evaluation/metrics.py", "from transduce import load"),
        ("training/loop.py", "from transduce import cli"),
        ("training/loop.py", "from transduce.run import train"),
        ("serving/app.py", "from transduce.training.trainer import Trainer"),
        ("errors.py", "from transduce.config import Config"),
    ):
        assert len(faults(module, line)) == 1, line


def test_an_import_that_points_down_is_not() -> None:
    for module, line in (
        ("nn/hook.py", "import torch"),
        ("nn/attention/multi_head.py", "from ..mask import and_causal"),
        ("nn/hook.py", "from transduce.errors import DataError"),
        ("models/transformer.py", "from transduce.nn import mask"),
        ("model_folder.py", "from transduce import __version__"),
        ("cli/train.py", "from transduce import load, train"),
        ("__main__.py", "from transduce.cli.main import entry"),
    ):
        assert faults(module, line) == [], line
