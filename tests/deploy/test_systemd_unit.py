"""The systemd unit: its syntax, by systemd itself where it is installed, and what it must not lack."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.files import UNIT, directives
from transduce.serving.connection import Timeouts
from transduce.serving.limits import Limits
from transduce.serving.server import SPARE_FILES

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="checks the unit by systemd-analyze; installing systemd removes this skip"
)


def analyze(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on the unit; the program of the unit is not installed here, so another one stands for it."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/transduce/bin/transduce", "/bin/sh"), "utf-8")
    return subprocess.run([str(ANALYZE), *arguments, str(copy)], capture_output=True, text=True, check=False)


@needs_systemd
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    done = analyze(tmp_path, "verify", "--man=no")
    faults = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, faults) == (0, [])


@needs_systemd
def test_systemd_rates_the_unit_as_well_confined(tmp_path: Path) -> None:
    done = analyze(tmp_path, "security", "--offline=yes", "--no-pager")
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd rates no files; version 250 or newer removes this skip")
    (level,) = re.findall(r"exposure level for .*: ([0-9.]+)", done.stdout)
    assert float(level) < 2.0


def test_sections_and_values_are_of_the_known_kinds() -> None:
    found = directives()
    assert list(dict.fromkeys(section for section, _, _ in found)) == ["Unit", "Service", "Install"]
    for _, name, value in found:
        if name.startswith(("Protect", "Private", "Restrict", "No", "Lock", "Dynamic", "Remove")):
            families = {"AF_UNIX", "AF_INET", "AF_INET6"}
            assert value in ("yes", "strict", "invisible") or set(value.split()) == families, name


def test_the_unit_is_confined_restarts_and_waits_for_what_runs() -> None:
    service = {name: value for section, name, value in directives() if section == "Service"}
    for name, value in {
        "DynamicUser": "yes",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "Restart": "on-failure",
        "KillMode": "mixed",  # SIGTERM to all processes would end the engines before their work is done
        "OOMPolicy": "continue",  # an engine that is killed is started again by the server
        "CapabilityBoundingSet": "",
    }.items():
        assert service[name] == value, name
    assert int(service["TimeoutStopSec"]) > Timeouts().shutdown + 5
    assert int(service["LimitNOFILE"]) >= Limits().max_connections * 5 // 4 + SPARE_FILES
    assert "MemoryMax" in service


def test_the_key_is_a_credential_and_not_in_the_unit() -> None:
    service = {name: value for section, name, value in directives() if section == "Service"}
    name, _, path = service["LoadCredential"].partition(":")
    assert f"--api-key-file ${{CREDENTIALS_DIRECTORY}}/{name}" in service["ExecStart"]
    assert path.startswith("/etc/")
    assert "Environment" not in service
