"""The Transformer of "Attention Is All You Need" and its relatives: train, translate, evaluate, inspect.

    import transduce

    transduce.train(source="train.en", target="train.de", output="runs/en-de")
    translator = transduce.load("runs/en-de")
    translator("some text")                       # a string
    translator(["one text", "another"])           # a list of strings

The public names are loaded when they are first used, so that `import transduce` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transduce import errors
    from transduce.inference.generator import Generator
    from transduce.inference.load import load
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.interop.import_model import import_model
    from transduce.interop.pretrained import from_pretrained
    from transduce.recipe import Recipe
    from transduce.run import EvaluationOptions, evaluate, fine_tune, train
    from transduce.text.constraint import Constraints
    from transduce.training.callback import StopTraining
    from transduce.training.reporter import Callback

__version__ = "0.1.0"
__all__ = [
    "Callback",
    "Constraints",
    "EvaluationOptions",
    "Generator",
    "Recipe",
    "StopTraining",
    "TextEncoder",
    "Translator",
    "__version__",
    "errors",
    "evaluate",
    "fine_tune",
    "from_pretrained",
    "import_model",
    "load",
    "train",
]

_HOMES = {
    "Callback": "transduce.training.reporter",
    "Constraints": "transduce.text.constraint",
    "EvaluationOptions": "transduce.run",
    "Generator": "transduce.inference.generator",
    "Recipe": "transduce.recipe",
    "StopTraining": "transduce.training.callback",
    "TextEncoder": "transduce.inference.text_encoder",
    "Translator": "transduce.inference.translator",
    "evaluate": "transduce.run",
    "fine_tune": "transduce.run",
    "from_pretrained": "transduce.interop.pretrained",
    "import_model": "transduce.interop.import_model",
    "load": "transduce.inference.load",
    "train": "transduce.run",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from transduce.errors import suggestion

        raise AttributeError(f"module 'transduce' has no attribute '{name}'{suggestion(name, __all__)}")
    import importlib

    if name not in _HOMES:
        return importlib.import_module(f"transduce.{name}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names: what completion and `help(transduce)` show."""
    return sorted(__all__)
