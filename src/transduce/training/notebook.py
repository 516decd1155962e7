"""The progress of a run in a notebook: a bar, and a table with a row for each validation."""

from __future__ import annotations

import html
import sys
import time
from typing import Any

from transduce.training.reporter import Callback, Plan, Step, Validation

REFRESH = 0.5
"""Seconds between updates of what is shown; a notebook keeps every one of them until the cell is done."""


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, which can show HTML; IPython in a terminal is not."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class NotebookProgress(Callback):
    """Shows a run in a notebook's cell; in a front end without HTML, as one line of text."""

    def __init__(self) -> None:
        self._display: Any = None
        self._began = self._shown = time.monotonic()
        self._first, self._updates, self._loss = 1, 0, float("nan")
        self._status = "preparing"
        self._notes: list[str] = []
        self._rows: list[dict[str, str]] = []
        self._update = 0

    def preparing(self, stage: str, count: int) -> None:
        """Show how far the preparation of the corpus is."""
        self._status = f"{stage}: {count:,}"
        self._show()

    def begin(self, plan: Plan) -> None:
        self._began, self._first, self._updates = time.monotonic(), plan.first_update, plan.updates
        self._status = f"{plan.parameters:,} parameters, {plan.train_pairs:,} training {plan.rows}"
        self._show(now=True)

    def step(self, step: Step) -> None:
        self._update, self._loss = step.update, step.loss
        self._show()

    def validation(self, validation: Validation) -> None:
        row = {"update": f"{validation.update:,}", "training loss": f"{self._loss:.4f}"}
        row |= {"validation loss": f"{validation.loss:.4f}", "accuracy": f"{100 * validation.accuracy:.1f} %"}
        row |= {name: f"{value:.2f}" for name, value in validation.measured_scores.items()}
        self._rows.append(row | ({"": "best"} if validation.best else {}))
        self._show(now=True)

    def warn(self, message: str) -> None:
        self._notes.append(message)
        self._show(now=True)

    def end(self, message: str) -> None:
        self._status = f"done: {message}"
        self._show(now=True)

    def to_text(self) -> str:
        """Return one line."""
        done = f"{self._update:,} of {self._updates:,} updates, loss {self._loss:.3f}{self._left()}; "
        return f"{done if self._updates else ''}{self._status}"

    def to_html(self) -> str:
        """Return the bar and the table."""
        notes = "".join(f"<div>{html.escape(note)}</div>" for note in self._notes)
        bar = f"<progress value='{self._update}' max='{self._updates}'></progress> " if self._updates else ""
        table = ""
        if self._rows:
            names = list(dict.fromkeys(name for row in self._rows for name in row))
            head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
            body = "".join(
                f"<tr>{''.join(f'<td>{html.escape(row.get(name, str()))}</td>' for name in names)}</tr>"
                for row in self._rows
            )
            table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<div>{notes}<div>{bar}{html.escape(self.to_text())}</div>{table}</div>"

    def _left(self) -> str:
        done = self._update - self._first + 1
        if done <= 0 or self._update >= self._updates:
            return ""
        seconds = int((time.monotonic() - self._began) / done * (self._updates - self._update))
        return f", {seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d} left"

    def _show(self, now: bool = False) -> None:
        if not now and self._display is not None and time.monotonic() - self._shown < REFRESH:
            return
        from IPython.display import display  # a notebook has it

        content = {"text/plain": self.to_text(), "text/html": self.to_html()}
        if self._display is None:
            self._display = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._display.update(content, raw=True)
        self._shown = time.monotonic()
