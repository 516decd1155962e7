"""A stand-in for a CUDA GPU, on machines without one.

`python -m tests.invariants.stand_in_gpu [PRESET …]` reports as JSON; with `--control` also on what must be found.

Tensors live on a device that PyTorch knows by shape and dtype only (`FakeTensorMode` on a Python backend), so the real
code of training and decoding runs, with real autograd, on a device that is not the CPU. What a GPU would punish is
recorded: reading a value (the host waits), copying to the CPU, an operation between devices, and the dtype of every
product. Autocast casts the operations that PyTorch lists for CUDA.

It runs in a process of its own, since the backend stays registered.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from torch.utils.flop_counter import flop_registry

NAME = "standin"
KEY = "AutocastPrivateUse1"
HALF = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "linalg_multi_dot",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "matmul",
    "mm",
    "mv",
    "prelu",
    "linear",
    "scaled_dot_product_attention",
]
"""Operations that autocast casts to the lower precision on CUDA, by PyTorch's page on automatic mixed precision."""
SINGLE = [
    "cosh",
    "cumprod",
    "cumsum",
    "dist",
    "exp",
    "expm1",
    "group_norm",
    "layer_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "nll_loss",
    "norm",
    "pow",
    "prod",
    "reciprocal",
    "rms_norm",
    "rsqrt",
    "sinh",
    "softmax",
    "softplus",
    "sum",
    "tan",
]
"""Operations that it casts to float32."""
WIDEST = ["addcdiv", "addcmul", "cat", "cross", "dot", "index_put", "scatter_add", "stack", "tensordot"]
"""Operations that it runs in their widest input dtype."""


def register() -> None:
    """Register the device and its autocast."""
    _setup_privateuseone_for_python_backend(rename=NAME)
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16]
    # Attention in parts, each of which is counted, and in the dtype that it was given, as fused kernels do.
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, KEY)
    aten = torch.library.Library("aten", "IMPL")
    KEPT.extend((rest, aten))
    for names, dtype in ((HALF, torch.bfloat16), (SINGLE, torch.float32), (WIDEST, None)):
        for name in names:
            packet = getattr(torch.ops.aten, name)
            for overload in packet.overloads():
                if "out" not in overload and "dimname" not in overload.lower():
                    full = name if overload == "default" else f"{name}.{overload}"
                    aten.impl(full, _casting(getattr(packet, overload), dtype), KEY)


KEPT: list[Any] = []
"""Registrations end with their objects."""


def _casting(op: Any, dtype: torch.dtype | None) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        floats: list[Tensor] = []
        tree_map(lambda one: floats.append(one) if _is_float(one) else None, (args, kwargs))
        wanted = dtype
        if wanted is None:
            wanted = torch.float32 if any(one.dtype == torch.float32 for one in floats) else torch.bfloat16
        with torch._C._ExcludeDispatchKeyGuard(keys):
            cast = tree_map(lambda one: one.to(wanted) if _is_float(one) else one, (args, kwargs))
            return op(*cast[0], **cast[1])

    return kernel


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float32, torch.bfloat16) and value.device.type == NAME


READS = {"_local_scalar_dense", "item", "nonzero", "equal", "is_nonzero", "masked_select", "unique_dim", "_unique2"}
"""Operations whose result the host has to wait for."""


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what would make the host wait, and counts FLOPs by dtype."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: Counter[str] = Counter()
        self.flops: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if _waits(func, name, args, kwargs):
            self.waits[f"{name} in {_place()}"] += 1
            if name == "equal":
                return False
        if name in ("_local_scalar_dense", "item"):
            return args[0].dtype == torch.bool or 1
        found = func(*args, **kwargs)
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            product = next(one for one in args if isinstance(one, Tensor))
            self.flops[str(product.dtype).removeprefix("torch.")] += count(*args, **kwargs, out_val=found)
        return found


def _waits(func: Any, name: str, args: Any, kwargs: Any) -> bool:
    first = next((one for one in args if isinstance(one, Tensor)), None)
    if first is None or first.device.type != NAME:
        return False
    to_host = name in ("_to_copy", "copy_") and torch.device(kwargs.get("device") or NAME).type == "cpu"
    copied = name == "copy_" and any(isinstance(one, Tensor) and one.device.type != NAME for one in args[:1])
    mask = name in ("index.Tensor", "index", "index_put", "index_put_") and any(
        one is not None and one.dtype == torch.bool for one in args[1]
    )
    return name in READS or to_host or copied or mask


def _place() -> str:
    """The line of ours that asked."""
    for frame in reversed(traceback.extract_stack()):
        if "/transduce/" in frame.filename:
            return f"{frame.filename.split('/transduce/')[-1]}:{frame.name}"
    return "?"


@contextmanager
def device() -> Iterator[Watch]:
    """Everything made inside the context is on the stand-in."""
    watch = Watch()
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True), watch, torch.device(NAME):
        warnings.simplefilter("ignore")
        yield watch


def main() -> None:
    """Report on the models named, or on all."""
    from tests.invariants import gpu_walk

    register()
    names = [name for name in sys.argv[1:] if name != "--control"]
    found = gpu_walk.control() if "--control" in sys.argv else {}
    json.dump({**found, **gpu_walk.report(names)}, sys.stdout)


if __name__ == "__main__":
    main()
