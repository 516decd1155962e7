"""Every law gets a `case` of the table and its `model`; gradients are not needed to compare answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.invariants.cases import CASES, Case, make_model
from transduce.models.interface import AnyTransducer


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    """Each case in turn."""
    assert isinstance(request.param, Case)
    return request.param


@pytest.fixture
def model(case: Case) -> Iterator[AnyTransducer]:
    """The case's model, new for every test, for exact comparison."""
    with torch.no_grad():
        yield make_model(case)
