"""The Transformer of "Attention Is All You Need" and its relatives: train, translate, evaluate, inspect.

    import transduce

    translator = transduce.load("runs/demo")
    translator("some text")

The public names are loaded when they are first used, so that `import transduce` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce.inference.generator import Generator
    from transduce.inference.load import load
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.recipe import Recipe
    from transduce.run import EvaluationOptions, evaluate, fine_tune, train
    from transduce.text.constraint import Constraints

__version__ = "0.1.0"
__all__ = [
    "Constraints",
    "EvaluationOptions",
    "Generator",
    "Recipe",
    "TextEncoder",
    "Translator",
    "__version__",
    "evaluate",
    "fine_tune",
    "load",
    "train",
]

_HOMES = {
    "Constraints": "transduce.text.constraint",
    "EvaluationOptions": "transduce.run",
    "Generator": "transduce.inference.generator",
    "TextEncoder": "transduce.inference.text_encoder",
    "Recipe": "transduce.recipe",
    "Translator": "transduce.inference.translator",
    "evaluate": "transduce.run",
    "fine_tune": "transduce.run",
    "load": "transduce.inference.load",
    "train": "transduce.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'transduce' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
