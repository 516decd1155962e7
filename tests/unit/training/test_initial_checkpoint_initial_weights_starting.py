"""Weights taken from somewhere else, and weights held still."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.unit.training.example import small_model
from transduce.data.prepared import Prepared
from transduce.errors import ModelFolderError, SettingsError
from transduce.model_folder import ModelFolder, save_model, weights_of
from transduce.models.transformer import TransformerConfig
from transduce.training.initial_checkpoint import copy_weights, freeze, load_matching_weights


def net(head: int) -> nn.Sequential:
    torch.manual_seed(head)
    return nn.Sequential(nn.Linear(3, 5), nn.Linear(5, head))


def test_what_fits_is_taken_and_the_rest_stays_as_it_was_drawn() -> None:
    old, new = net(2), net(7)
    drawn = {name: weight.detach().clone() for name, weight in new.named_parameters()}
    given = dict(old.state_dict())
    del given["0.bias"]
    taken = copy_weights(new, {**given, "9.weight": torch.ones(1)})
    assert (taken.loaded, taken.new) == (("0.weight",), ("0.bias",))
    assert (taken.reshaped, taken.unused) == (("1.weight", "1.bias"), ("9.weight",))
    assert torch.equal(new[0].weight, old[0].weight)
    assert all(torch.equal(weight, drawn[name]) for name, weight in new.named_parameters() if name != "0.weight")
    assert str(taken) == (
        "1 of 4 weights loaded; 1 is new (0.bias); 2 are of another shape (1.weight, 1.bias); 1 is not used (9.weight)"
    )


def test_taking_all_is_what_load_state_dict_does() -> None:
    old, new, torchs = net(2), net(2), net(2)
    torchs.load_state_dict(old.state_dict())
    assert str(copy_weights(new, old.state_dict())) == "4 of 4 weights loaded"
    assert all(torch.equal(a, b) for a, b in zip(new.parameters(), torchs.parameters(), strict=True))


def test_weights_that_are_not_finite_are_rejected_before_any_is_taken() -> None:
    new = net(2)
    drawn = new[0].weight.detach().clone()
    with pytest.raises(ModelFolderError, match=r"'1\.bias' holds values that are not finite"):
        copy_weights(new, {"0.weight": torch.zeros(5, 3), "1.bias": torch.tensor([1.0, torch.inf])})
    assert torch.equal(new[0].weight, drawn)


def test_a_folder_gives_its_weights_and_one_of_which_nothing_fits_is_rejected(
    prepared: Prepared, tmp_path: Path
) -> None:
    model, tokenizer = small_model(prepared), prepared.source_tokenizer
    save_model(tmp_path / "model", ModelFolder(model, TransformerConfig(), tokenizer, tokenizer), "card")
    other = small_model(prepared, num_layers=2)
    taken = load_matching_weights(other, tmp_path)  # a run is as good as its model
    assert len(taken.loaded) == len(weights_of(model)) and all(".1." in name for name in taken.new)
    assert all(torch.equal(weights_of(other)[name], weight) for name, weight in weights_of(model).items())
    with pytest.raises(ModelFolderError, match="none of its weights matches"):
        load_matching_weights(net(2), tmp_path / "model")


def test_patterns_hold_weights_still_by_any_of_their_names(prepared: Prepared) -> None:
    model = small_model(prepared)
    names = [name for name, _ in model.named_parameters()]
    encoder = [name for name in names if name.startswith("encoder.")]
    assert encoder and freeze(model, ["encoder.*"]) == encoder
    tied = small_model(prepared)  # one matrix with three uses
    assert freeze(tied, ["output.weight"]) == [name for name in names if name.endswith("embedding.weight")]


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (["encodr.*"], r"no weight matches 'encodr\.\*'; did you mean 'encoder\.\*'\?"),
        (["xyz"], r"no weight matches 'xyz'.*decoder\.\*, "),
        (["encoder.*", "[!e]*"], "nothing is left to train"),
        (["*"], "nothing is left to train"),
    ],
)
def test_patterns_that_fit_nothing_or_everything_are_rejected(
    prepared: Prepared, patterns: list[str], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        freeze(small_model(prepared), patterns)
