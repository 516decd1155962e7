"""Where the host may ask a tensor for its value: on a GPU it then waits for all queued work.

Every call of `.item()`, `.tolist()`, `.cpu()`, `.numpy()`, `.nonzero()`, and of `bool`, `int` or `float` on what an
expression computes, in the code that runs once per layer, token or micro-batch. Each that is allowed has its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "transduce"
HOT = (
    *sorted(
        path.relative_to(PACKAGE).as_posix() for folder in ("nn", "models") for path in (PACKAGE / folder).rglob("*.py")
    ),
    "data/batching.py",
    "tasks/transducer.py",
    "tasks/text_encoding/batches.py",
    "training/muon.py",
    "training/optimizer.py",
    "training/reduction.py",
    "training/step.py",
    "training/update.py",
)
METHODS = {"item", "tolist", "cpu", "numpy", "nonzero"}
CASTS = {"bool", "int", "float"}

HOST = "numbers of the host"
ON_CPU = "runs on a CPU only"
ALLOWED = {
    ("nn/device.py", "is_full", "bool"): "asked on a CPU only",
    ("nn/cpu/cross_entropy.py", "_exponentials", "bool"): ON_CPU,
    ("nn/attention/dot_product.py", "_weights", "bool"): ON_CPU,
    ("nn/state.py", "_update", "tolist"): "once when sentences come or go, not in a step",
    ("nn/state.py", "largest", "int"): "when the cache grows, or sentences come or go",
    ("nn/state.py", "select", "int"): "when sentences are left out",
    ("nn/state.py", "select", "bool"): "when sentences are left out",
    ("models/rnn.py", "encode", "cpu"): "packed sequences need their lengths on the CPU",
    ("models/rnn.py", "decode_ragged", "bool"): "a prompt or prefix, not a step",
    ("models/recurrent_lm.py", "extend", "bool"): "a prompt or prefix, not a step",
    ("models/recurrent_lm.py", "extend", "cpu"): "a prompt or prefix, not a step",
    ("models/recurrent_lm.py", "extend", "nonzero"): "a prompt or prefix, not a step",
    ("models/universal.py", "ponder", "bool"): ON_CPU,
    ("models/ancestors/neural_gpu.py", "worked", "int"): ON_CPU,
    (
        "models/ancestors/memory_network.py",
        "__init__",
        "int",
    ): "only tokens with a slot are looked up, so it asks which",
    ("models/ancestors/memory_network.py", "__init__", "nonzero"): "only tokens with a slot are looked up",
    ("models/ancestors/captioner.py", "region_side", "int"): HOST,
    ("nn/cpu/packed.py", "_has_vnni", "bool"): HOST,
    **{
        ("data/batching.py", name, "int"): HOST
        for name in ("cut_by_budget", "picker", "collate", "_in_a_row", "_padded")
    },
    ("tasks/transducer.py", "largest_batch", "numpy"): "a batch that is not on a device yet",
    ("tasks/text_encoding/batches.py", "collate_examples", "int"): HOST,
    ("training/optimizer.py", "rate", "float"): HOST,
    ("training/update.py", "loss", "float"): "HostUpdate",
    ("training/update.py", "total", "float"): "HostUpdate",
    ("training/update.py", "__call__", "float"): "HostUpdate",
    ("training/update.py", "read", "tolist"): "once for all updates since the last logged one",
}


def calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str, ast.Call]]:
    for node in ast.iter_child_nodes(tree):
        inside = node.name if isinstance(node, ast.FunctionDef) else function
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in METHODS:
                yield function, called.attr, node
            elif isinstance(called, ast.Name) and called.id in CASTS and not _is_host(node):
                yield function, called.id, node
        yield from calls(node, inside)


def _is_host(call: ast.Call) -> bool:
    """Whether the argument is a plain name, a setting or arithmetic of such: settings are numbers of the host."""
    if not call.args:
        return True
    argument = call.args[0]
    tensor = any(
        isinstance(part, ast.Call | ast.Compare)
        or (isinstance(part, ast.Name) and part.id in ("norm", "total", "smoothed"))
        for part in ast.walk(argument)
    )
    return not tensor


def found() -> dict[tuple[str, str, str], list[int]]:
    lines: dict[tuple[str, str, str], list[int]] = {}
    for name in HOT:
        for function, call, node in calls(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))):
            lines.setdefault((name, function, call), []).append(node.lineno)
    return lines


def test_hot_paths_ask_no_tensor_for_its_value_but_where_allowed() -> None:
    assert {key: lines for key, lines in found().items() if key not in ALLOWED} == {}


def test_every_exception_is_still_needed() -> None:
    assert ALLOWED.keys() - found().keys() == set()


def test_the_lint_finds_what_it_looks_for() -> None:
    source = "def f(x):\n    return bool((x > 0).all()), x.sum().item(), x.tolist(), int(len_of(x)), bool(flag)"
    assert [call for _, call, _ in calls(ast.parse(source))] == ["bool", "item", "tolist", "int"]
