"""Print what each hostile case costs: `python -m tests.torture.hostile`, or with words of their names."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.torture.fork_server import ForkServer
from tests.torture.hostile.case import make_bases, place_of
from tests.torture.test_hostile_models import CASES, LIMITS


def main() -> None:
    """Print exit code, seconds, megabytes and the error of each case."""
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), sys.argv[1:]
        server, bases = ForkServer(folder), make_bases(folder / "bases")
        for number, (case_name, case) in enumerate(CASES.items()):
            if not all(word in case_name for word in words):
                continue
            place, measured = place_of(bases, folder / f"case-{number}"), folder / f"measured-{number}"
            case.damage(place)
            outcome = server.run(*case.arguments(place), measure=str(measured), limits=LIMITS)
            used = json.loads(measured.read_text()) if measured.exists() else {"seconds": -1, "megabytes": -1}
            last = outcome.err.splitlines()[-1] if outcome.err else "nothing"
            what = last.replace(f"{place}/", "")[:110]
            print(
                f"| {case_name} | {outcome.code} | {used['seconds']:.2f} | {used['megabytes']:.0f} | {what} |",
                flush=True,
            )
            for path in place.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    path.unlink()
        server.close()


if __name__ == "__main__":
    main()
