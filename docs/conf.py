"""Settings of the documentation site: Sphinx reads the Markdown with MyST and renders it with Furo.

    make docs-site

The source folder is the project's root, so that links from one document to another work here as they do in the
repository. Nothing in the built pages is fetched from elsewhere, and the search is in the browser.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from transduce import __version__

project, author, copyright = "transduce", "the transduce authors", "the transduce authors, Apache License 2.0"
version = release = __version__

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
exclude_patterns = [".*", "build", "runs", "src", "tests", "bench", "recipes"]
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]
"""Links to folders of the repository, which have no page; commands with `…` in them."""

myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = f"transduce {__version__}"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}

_LINK = re.compile(r"\[([^]]+)\]\(([^)#:\s]+)\.md\)")


def _add_contents(_: Any, docname: str, source: list[str]) -> None:
    """Give every index page a table of contents of the pages that it links to, which Sphinx shows in the sidebar."""
    if Path(docname).name == "index":
        pages = {page: " ".join(title.split()) for title, page in _LINK.findall(source[0])}
        entries = "\n".join(f"{title} <{page}>" for page, title in pages.items())
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"


def _redirect(app: Any, error: Exception | None) -> None:
    """Send whoever opens the site's folder to its first page."""
    if error is None:
        page = '<!DOCTYPE html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    """Connect to Sphinx's events."""
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _redirect)
