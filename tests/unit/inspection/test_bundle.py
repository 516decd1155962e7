"""One script from several ES modules."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from transduce.inspection.bundle import BundleError, bundle
from transduce.inspection.page import asset

PAGE = resources.files("transduce.inspection").joinpath("page")
MODULES = sorted(
    path.relative_to(str(PAGE)).as_posix()
    for folder in ("lib", "views", "studio")
    for path in Path(str(PAGE), folder).rglob("*.js")
)


def bundled(**modules: str) -> str:
    return bundle("main.js", {f"{name}.js": text for name, text in modules.items()}.__getitem__)


def test_modules_come_after_what_they_import_and_once() -> None:
    script = bundled(
        main='import { a } from "./a.js";\nimport { b } from "./b.js";\nrun(a, b);\n',
        a='import { b } from "./b.js";\nexport function a() { return b; }\n',
        b="export const b = 1;\n",
    )
    assert script == "const b = 1;\nfunction a() { return b; }\nrun(a, b);\n"


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"main": 'import a from "./a.js";\n'}, "import only as"),
        ({"main": 'import { a as b } from "./a.js";\n'}, "import only as"),
        ({"main": 'import * as a from "./a.js";\n'}, "import only as"),
        ({"main": 'import { a } from "https://example.org/a.js";\n'}, "import only as"),
        ({"main": "export default 1;\n"}, "export only at"),
        ({"main": "export { a };\n"}, "export only at"),
        ({"main": 'const a = import("./a.js");\n'}, "dynamic import"),
        ({"main": "const { a } = b;\n"}, "one by one"),
        (
            {"main": 'import { a } from "./a.js";\nconst b = 1;\n', "a": "export const a = 1;\nlet b = 2;\n"},
            "b is also",
        ),
        ({"main": 'import { c } from "./a.js";\n', "a": "export const a = 1;\n"}, "does not export c"),
        ({"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\n'}, "imports itself"),
    ],
)
def test_other_forms_are_errors(modules: dict[str, str], message: str) -> None:
    with pytest.raises(BundleError, match=re.escape(message)):
        bundled(**modules)


def test_every_view_can_be_saved() -> None:
    script = bundle("saved.js", asset)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    views = [name for name in MODULES if name.startswith("views/") and name != "views/catalog.js"]
    for name in views:
        own = next(line for line in asset(name).split("\n") if line.startswith("export "))
        assert own.removeprefix("export ") in script, f"{name} is not reached from views/catalog.js"


def test_no_module_makes_markup_of_text() -> None:
    parsing = (
        r"(inner|outer|insertAdjacent)HTML|document\.write|\beval\(|new Function|setAttribute\(\"style|javascript:"
    )
    for name in MODULES:
        code = re.sub(r"(?m)//.*$", "", asset(name))
        assert not re.search(parsing, code), name


def test_only_the_modules_of_requests_fetch() -> None:
    assert [name for name in MODULES if re.search(r"\bfetch\(", asset(name))] == ["studio/api.js"]


def test_modules_of_the_studio_can_be_resolved() -> None:
    bundle("studio/app.js", asset)


@pytest.mark.skipif(shutil.which("node") is None, reason="checks syntax with Node.js; installing it removes this skip")
def test_the_script_of_saved_pages_is_valid(tmp_path: Path) -> None:
    (tmp_path / "saved.mjs").write_text(bundle("saved.js", asset), encoding="utf-8")
    subprocess.run(["node", "--check", str(tmp_path / "saved.mjs")], check=True)
