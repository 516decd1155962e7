"""One small prepared corpus for all tests of this folder; they only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.example import recipe
from transduce.data.prepare import prepare
from transduce.data.store import Prepared, load_prepared


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small, folder = recipe(), tmp_path_factory.mktemp("corpus") / "data"
    prepare(small.data, small.tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def prepared(prepared_folder: Path) -> Prepared:
    return load_prepared(prepared_folder)
