"""One script from several ES modules, for pages that are saved as one file.

Modules are concatenated in the order of their imports, without the words `import` and `export`. That is correct only
for modules of a plain form, which `bundle` checks: imports of names, each on one line, from relative paths; exports at
the declaration; every top-level name unique over all modules.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

IMPORT = re.compile(r'import \{ (\w+(?:, \w+)*) \} from "(\.{1,2}/[\w./-]+\.js)";')
EXPORT = re.compile(r"export (?=(?:async )?(?:function|class|const)\b)")
DECLARATION = re.compile(r"(export )?(?:async )?(?:function\*?|class|const|let|var)\s+(\w+)?")
DYNAMIC = re.compile(r"\bimport\s*\(|\bimport\.meta\b")


class BundleError(ValueError):
    """A module is not of the plain form."""


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """Return the script of a module and of all that it imports; `read` returns the text of a module by its path."""
    ordered: dict[str, tuple[str, set[str]]] = {}
    owners: dict[str, str] = {}
    _visit(entry, read, ordered, owners, ())
    return "".join(code for code, _ in ordered.values())


def _visit(
    path: str,
    read: Callable[[str], str],
    ordered: dict[str, tuple[str, set[str]]],
    owners: dict[str, str],
    above: tuple[str, ...],
) -> None:
    """Add a module, after the modules that it imports."""
    if path in ordered:
        return
    if path in above:
        raise BundleError(f"{path}: imports itself through {' → '.join(above)}")
    lines, exported = [], set()
    for number, line in enumerate(read(path).split("\n"), start=1):
        where = f"{path}:{number}"
        if line.startswith("import"):
            names, target = _imported(line, where)
            found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            _visit(found, read, ordered, owners, (*above, path))
            if missing := names - ordered[found][1]:
                raise BundleError(f"{where}: {found} does not export {', '.join(sorted(missing))}")
            continue
        if DYNAMIC.search(line):
            raise BundleError(f"{where}: dynamic import")
        if line.startswith("export") and not EXPORT.match(line):
            raise BundleError(f"{where}: export only at a function, class or const")
        if declared := DECLARATION.match(line):
            name = _declared(declared, owners, path, where)
            if declared[1]:
                exported.add(name)
        lines.append(EXPORT.sub("", line, count=1) if line.startswith("export") else line)
    ordered[path] = "\n".join(lines), exported


def _imported(line: str, where: str) -> tuple[set[str], str]:
    match = IMPORT.fullmatch(line)
    if not match:
        raise BundleError(f'{where}: import only as `import {{ a, b }} from "./x.js";` on one line')
    return set(match[1].split(", ")), match[2]


def _declared(match: re.Match[str], owners: dict[str, str], path: str, where: str) -> str:
    """Return the name of a top-level declaration; no other module may have it."""
    name: str | None = match[2]
    if name is None:
        raise BundleError(f"{where}: declare top-level names one by one")
    if name in owners:
        raise BundleError(f"{where}: {name} is also declared in {owners[name]}")
    owners[name] = path
    return name
