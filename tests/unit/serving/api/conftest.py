from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.serving.api.live import ALL, KEY, Live, live


@pytest.fixture(scope="session")
def _running() -> Iterator[Live]:
    with live(*ALL) as running:
        yield running


@pytest.fixture(scope="session")
def _running_with_key() -> Iterator[Live]:
    with live(*ALL, keys=(KEY,)) as running:
        yield running


@pytest.fixture
def server(_running: Live) -> Live:
    """A server with models of all tasks."""
    _running.forget()
    return _running


@pytest.fixture
def keyed(_running_with_key: Live) -> Live:
    """The same with a key."""
    _running_with_key.forget()
    return _running_with_key
