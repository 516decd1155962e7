"""One process at a time, and none forever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transduce.errors import Busy, CannotCreate
from transduce.storage.filesystem import locked, locked_file


def test_a_locked_folder_is_busy_for_another_process_and_free_afterwards(tmp_path: Path) -> None:
    """The lock ends with the process that held it, even if it was killed: here it simply ends."""
    script = (
        "import sys; from pathlib import Path; from transduce.storage.filesystem import locked\n"
        "with locked(Path(sys.argv[1]), 'training'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(Busy, match="another process is training there"), locked(tmp_path, "training"):
            pass
        other.kill()
    with locked(tmp_path, "training"):
        pass


def test_a_lock_that_its_holder_removed_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened while another process held it, locked after that one removed it: a third would lock a new one."""
    real = os.open

    def opened(path: Path, *arguments: int) -> int:
        monkeypatch.setattr(os, "open", real)
        descriptor = real(path, *arguments)
        path.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", opened)
    with locked(tmp_path, "training"), pytest.raises(Busy), locked(tmp_path, "training"):
        pass


def test_a_locked_file_keeps_its_content_and_belongs_to_one_process(tmp_path: Path) -> None:
    path = tmp_path / "x.part"
    with locked_file(path, path, "busy") as file:
        file.write(b"some")
        with pytest.raises(Busy, match="busy"), locked_file(path, path, "busy"):
            raise AssertionError
    with locked_file(path, path, "busy") as file:
        assert file.read() == b"some"
        path.rename(tmp_path / "x")
        with locked_file(path, path, "busy") as other:  # the name is free again
            assert other.read() == b""
    with pytest.raises(CannotCreate, match="shown: cannot be written"), locked_file(tmp_path, Path("shown"), "busy"):
        raise AssertionError
