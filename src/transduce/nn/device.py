"""Choice of the device from a setting or an option."""

from __future__ import annotations

import torch
from torch import nn

from transduce.errors import SettingsError


def choose_device(name: str, where: str) -> str:
    """Return cpu, cuda or mps; `auto` takes a GPU if there is one. A device that torch cannot use here is rejected."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return next(device for device, is_there in available.items() if is_there)
    if not available.get(name, False):
        usable = " or ".join(["auto", *(device for device, is_there in available.items() if is_there)])
        raise SettingsError(f"{where} {name}: torch finds no such device on this machine; use {usable}")
    return name


def move(model: nn.Module, name: str, where: str = "--device") -> str:
    """Move a model in place to the device of this name and return the device."""
    device = choose_device(name, where)
    if device != "cpu":  # moving drops the packed weights, even to where they are
        model.to(device)
    return device
