"""One server for all attacks that leave it as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.torture.serving.target import Target, given_target, server_process


@pytest.fixture(scope="session")
def shared_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The server of this session."""
    if sys.platform != "linux":
        pytest.skip("the attacks look at /proc; Linux removes this skip")
    given = given_target()
    if given is not None:
        yield given
        return
    with server_process(tmp_path_factory.mktemp("server")) as target:
        yield target


@pytest.fixture
def target(shared_target: Target) -> Iterator[Target]:
    """The server; after each attack it must serve as before and have logged no error."""
    before = len(shared_target.faults())
    yield shared_target
    shared_target.probe()
    assert shared_target.faults()[before:] == []


@pytest.fixture
def own_server(shared_target: Target) -> None:
    """For attacks that need a server with settings of their own."""
    if not shared_target.is_fake:
        pytest.skip("the attack starts a server with settings of its own; leave out TRANSDUCE_SERVER")
