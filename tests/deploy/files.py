"""Reading the files of `deploy/`: directives of the unit, instructions of the Dockerfile, arguments of the command."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.deploy.kubernetes_schema import manifests

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy/systemd/transduce.service"
DOCKERFILE = ROOT / "deploy/Dockerfile"
SITE = ROOT / "deploy/nginx/transduce.conf"


class Instruction(NamedTuple):
    """One instruction of a Dockerfile."""

    stage: int
    name: str
    value: str

    @property
    def words(self) -> list[str]:
        """The words of its value; JSON for the exec form."""
        return json.loads(self.value) if self.value.startswith("[") else shlex.split(self.value)


def logical_lines(text: str) -> list[str]:
    """Lines without comments and empty ones; a backslash continues a line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]
    return [line for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines() if line.strip()]


def directives() -> list[tuple[str, str, str]]:
    """(section, name, value) of every directive of the unit."""
    found, section = [], ""
    for line in logical_lines(UNIT.read_text(encoding="utf-8")):
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        else:
            name, equals, value = line.partition("=")
            assert equals and re.fullmatch(r"[A-Z]\w+", name), line
            found.append((section, name, value))
    return found


def instructions() -> list[Instruction]:
    """The instructions of the Dockerfile, in order."""
    found, stage = [], -1
    for line in logical_lines(DOCKERFILE.read_text(encoding="utf-8")):
        name, _, value = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(stage, name, value.strip()))
    return found


def serve_arguments() -> dict[str, list[str]]:
    """The arguments that each file of `deploy/` gives to `transduce serve`."""
    (start,) = [value for _, name, value in directives() if name == "ExecStart"]
    program, verb, *of_unit = shlex.split(start)
    assert (Path(program).name, verb) == ("transduce", "serve")
    last = {one.name: one for one in instructions() if one.stage == 1}
    program, verb, *of_image = last["ENTRYPOINT"].words
    assert (program, verb) == ("transduce", "serve")
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    (of_proxy,) = re.findall(r"`transduce serve (.*)`", SITE.read_text(encoding="utf-8"))
    return {
        "unit": of_unit,
        "image": [*of_image, *last["CMD"].words],
        "deployment": [*of_image, *container["args"]],
        "proxy": [*of_proxy.split(), "FOLDER"],
    }
