"""Initialisation of the weights from one private generator, so that a seed determines the model."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from transduce.nn.attention.feature import RandomFeatures
from transduce.nn.attention.hashed import Hashed
from transduce.nn.embedding import Embedding, Output
from transduce.nn.position import Buckets, LearnedPositions
from transduce.nn.recurrence import Recurrence
from transduce.rng import torch_generator

Rule = Literal["normal", "glorot", "torch"]
"""normal and glorot differ in embeddings, learned positions and the output layer: N(0, 1/D), or Glorot as for other
matrices. torch is the default initialisation of torch's modules."""


def initialize(model: nn.Module, seed: int, rule: Rule = "normal") -> None:
    """Fill every parameter: N(0, 1/D) for embeddings, ones for the scales of norms, Glorot for matrices, else zeros.

    Packed linear layers have `parts`, and each part is drawn for its own shape.
    """
    generator = torch_generator(seed)
    done: set[int] = set()
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if id(parameter) not in done:
                    if rule == "torch":
                        _fill_as_torch(module, name, parameter, generator)
                    else:
                        _fill(module, name, parameter, generator, glorot=rule == "glorot")
                    done.add(id(parameter))
    for module in model.modules():
        if isinstance(module, Recurrence):
            module.open_gates()


def _fill(module: nn.Module, name: str, parameter: Tensor, generator: torch.Generator, glorot: bool) -> None:
    if isinstance(module, Embedding | Output | LearnedPositions) and glorot and parameter.dim() == 2:
        _glorot(parameter, generator)
    elif isinstance(module, Embedding):
        parameter.normal_(std=module.std, generator=generator)
    elif isinstance(module, Output | LearnedPositions) and name != "bias":
        parameter.normal_(std=parameter.shape[1] ** -0.5, generator=generator)
    elif isinstance(module, RandomFeatures | Hashed):
        module.draw(generator)  # drawn once and never trained
    elif isinstance(module, Buckets):
        parameter.zero_()  # no preferred distance
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        parameter.fill_(1.0 if name == "weight" else 0.0)
    elif isinstance(module, nn.RNNBase) and name.startswith("weight"):
        bound = module.hidden_size**-0.5
        parameter.uniform_(-bound, bound, generator=generator)
    elif parameter.dim() == 1:
        parameter.zero_()
    else:
        for part in torch.split(parameter, getattr(module, "parts", [parameter.shape[0]])):
            _glorot(part, generator)


def _fill_as_torch(module: nn.Module, name: str, parameter: Tensor, generator: torch.Generator) -> None:
    """N(0, 1) for embeddings, and for a layer of n inputs weights and biases between -1/√n and 1/√n."""
    if isinstance(module, Embedding | LearnedPositions):
        parameter.normal_(generator=generator)
    elif isinstance(module, nn.Linear | Output):
        bound = module.weight.shape[1] ** -0.5
        parameter.uniform_(-bound, bound, generator=generator)
    else:
        _fill(module, name, parameter, generator, glorot=False)


def _glorot(matrix: Tensor, generator: torch.Generator) -> None:
    """For a convolution kernel (out, in, …) fan-in and fan-out count every position."""
    places = matrix[0, 0].numel()
    bound = (6.0 / (places * sum(matrix.shape[:2]))) ** 0.5
    matrix.uniform_(-bound, bound, generator=generator)
