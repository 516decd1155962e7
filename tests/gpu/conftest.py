"""What only a GPU can show. Nothing here has been run by the authors, who have none: the first run is news."""

from __future__ import annotations

import pytest
import torch

REASON = "no CUDA GPU here: install a CUDA build of torch on a machine with one and run `make test-gpu`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if "/gpu/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=REASON))
