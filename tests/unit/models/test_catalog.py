"""The table of models: names, presets, a recipe's [model], and what a seed means."""

from __future__ import annotations

import pytest
import torch

from transduce.errors import SettingsError
from transduce.models.catalog import MODELS, build, entry, name_of, preset, read_model_table
from transduce.models.interface import EncoderModel, Transducer, VocabularySizes
from transduce.models.rnn import Rnn, RnnConfig
from transduce.models.transformer import Transformer, TransformerConfig, paper_base, paper_big
from transduce.nn.embedding import Embedding

SIZES = VocabularySizes(11, 11)
SMALL = {"model_dim": 6, "num_heads": 2, "ffn_dim": 7, "num_layers": 1}
PRESETS = [(model, name) for model, known in MODELS.items() for name in known.presets]


def test_preset_names_are_unique_over_all_models() -> None:
    names = [name for _, name in PRESETS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("model", "name"), PRESETS)
def test_every_preset_is_found_and_belongs_to_its_model(model: str, name: str) -> None:
    found, config = preset(name)
    assert found == model == name_of(config)
    assert type(config) is MODELS[model].config


@pytest.mark.parametrize(("model", "name"), PRESETS)
def test_every_preset_survives_being_written_and_read(model: str, name: str) -> None:
    _, config = preset(name)
    assert read_model_table({"name": model, **config.to_table()}, "recipe.toml: model") == config


@pytest.mark.parametrize(("model", "name"), PRESETS)
def test_every_preset_builds(model: str, name: str) -> None:
    _, config = preset(name)
    with torch.device("meta"):
        built = build(config, SIZES)
    assert built.sizes == SIZES
    if isinstance(built, EncoderModel):
        embeddings = [module for module in built.modules() if isinstance(module, Embedding)]
        assert embeddings[0].weight.shape[0] == SIZES.source
    else:
        assert isinstance(built, Transducer)
        assert built.output.weight.shape[0] == SIZES.target


def test_every_setting_of_every_model_is_explained() -> None:
    for known in MODELS.values():
        assert [name for name in known.config.model_fields if not known.config.descriptions().get(name)] == []


def test_an_unknown_model_gets_a_suggestion() -> None:
    with pytest.raises(SettingsError, match=r"^unknown model 'transfomer'; did you mean 'transformer'\?$"):
        entry("transfomer")


def test_an_unknown_preset_gets_a_suggestion() -> None:
    with pytest.raises(SettingsError, match=r"^unknown preset 'paper_bas'; did you mean 'paper_base'\?$"):
        preset("paper_bas")


def test_a_table_without_a_name_is_a_transformer() -> None:
    assert read_model_table({}, "recipe.toml: model") == TransformerConfig()
    assert read_model_table(SMALL, "recipe.toml: model") == TransformerConfig(**SMALL)


def test_a_name_chooses_the_model() -> None:
    assert read_model_table({"name": "rnn"}, "recipe.toml: model") == RnnConfig()


def test_settings_change_a_preset() -> None:
    found = read_model_table({"preset": "paper_big", "dropout": 0.1}, "recipe.toml: model")
    assert found == paper_big().but(dropout=0.1)


def test_a_preset_may_stand_beside_the_name_of_its_model_only() -> None:
    table = {"name": "transformer", "preset": "paper_base"}
    assert read_model_table(table, "recipe.toml: model") == paper_base()
    with pytest.raises(SettingsError, match="preset 'paper_base' is a transformer, not a rnn"):
        read_model_table({**table, "name": "rnn"}, "recipe.toml: model")


def test_an_error_names_the_file_and_the_setting() -> None:
    with pytest.raises(
        SettingsError, match=r"^recipe.toml: model: unknown setting 'num_head'; did you mean 'num_heads'\?$"
    ):
        read_model_table({"num_head": 4}, "recipe.toml: model")


@pytest.mark.parametrize("wanted", [{"name": "x"}, {"preset": "x"}, {"name": 3}, {"preset": []}], ids=str)
def test_nonsense_in_the_place_of_a_name_is_rejected(wanted: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        read_model_table(wanted, "recipe.toml: model")


@pytest.mark.parametrize(
    ("config", "kind"),
    [(TransformerConfig(**SMALL), Transformer), (RnnConfig(embedding_dim=5, hidden_dim=3), Rnn)],
    ids=["transformer", "rnn"],
)
def test_a_seed_means_one_model(config: TransformerConfig | RnnConfig, kind: type) -> None:
    first, second, other = build(config, SIZES, seed=5), build(config, SIZES, seed=5), build(config, SIZES, seed=6)
    assert isinstance(first, kind)
    states = first.state_dict(), second.state_dict(), other.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])


def test_building_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    build(TransformerConfig(**SMALL), SIZES, seed=5)
    build(RnnConfig(embedding_dim=5, hidden_dim=3), SIZES)
    assert torch.equal(before, torch.get_rng_state())


def test_one_matrix_for_two_vocabularies_is_rejected() -> None:
    with pytest.raises(SettingsError, match=r"tied_embeddings = 'all' .* 1,117 and 23 tokens"):
        build(TransformerConfig(**SMALL), VocabularySizes(1117, 23))
