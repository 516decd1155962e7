"""Writing a file whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from transduce.errors import CannotCreate, StorageError

_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


def write_file(path: Path, content: bytes) -> None:
    """Write aside and rename, so that nobody ever finds half a file; a link is followed, a device written to."""
    try:
        if path.is_dir():
            raise CannotCreate(f"{path}: is a folder; give the name of a file")
        if path.exists() and not path.is_file():  # /dev/stdout, a pipe: nothing to rename
            path.write_bytes(content)
            return
        place = path.resolve()
        aside = place.with_name(f".{place.name[:40]}.{os.urandom(4).hex()}.aside")
        try:
            aside.write_bytes(content)
            aside.replace(place)
        finally:
            aside.unlink(missing_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in _STORAGE:
            raise StorageError(f"{path}: writing failed ({error.strerror}); make room and try again") from None
        raise CannotCreate(f"{path}: cannot be created ({error.strerror}); give another place to write to") from None
