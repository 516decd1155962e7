"""A run's folder: whose it is, and how it is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from transduce.errors import CannotCreate
from transduce.training.run_folder import empty_on_error, locked_run


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_one_who_was_killed_while_writing_the_recipe_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("")
    (tmp_path / ".recipe.toml.123.writing").write_text("half")
    with locked_run(tmp_path, resume=False):
        assert names(tmp_path) == {".lock"}


@pytest.mark.parametrize("resume", [False, True])
def test_what_was_left_behind_is_put_right_when_a_run_goes_on(tmp_path: Path, resume: bool) -> None:
    if resume:
        (tmp_path / "recipe.toml").write_text("")
        for name in (".update-00000013.writing", ".update-00000020.replaced"):
            (tmp_path / "checkpoints" / name).mkdir(parents=True)
    with locked_run(tmp_path, resume):
        found = {"recipe.toml", "checkpoints", "checkpoints/update-00000020"} if resume else set()
        assert names(tmp_path) == {".lock"} | found


def test_a_folder_of_somebody_is_rejected_untouched(tmp_path: Path) -> None:
    (tmp_path / ".thesis.writing").write_text("mine")
    with pytest.raises(CannotCreate, match="not a run"), locked_run(tmp_path, resume=False):
        pass
    assert names(tmp_path) == {".thesis.writing"}


def test_the_recipe_and_then_the_lock_go_last_when_setting_up_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, what is left is a run that goes on, or an empty folder; and nobody else comes in meanwhile."""
    for name in (".lock", "recipe.toml", "journal.jsonl", ".a", "z"):
        (tmp_path / name).write_text("")
    gone: list[str] = []
    real = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path: (gone.append(path.name), real(path)))
    with pytest.raises(ValueError, match="no"), empty_on_error(tmp_path):
        raise ValueError("no")
    assert gone[-2:] == ["recipe.toml", ".lock"]
    assert set(gone[:-2]) == {"journal.jsonl", ".a", "z"}
