"""The models of a run's checkpoints, and limits of what is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.inference.random_translator import OPTIONS, TEXT, random_translator
from tests.unit.serving.studio.served import Served, of_folder, shares
from transduce.errors import MissingInput, SettingsError
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder, save_model, save_weights, weights_of
from transduce.serving.process import MAX_LINE
from transduce.serving.studio import inspector
from transduce.serving.studio.inspector import LoadedCheckpoints, check_array
from transduce.storage.atomic import write_json
from transduce.storage.checkpoints import SavedCheckpoints
from transduce.storage.layout import CHECKPOINT_KIND, OPTIMIZER, PROGRESS, WEIGHTS
from transduce.storage.manifest import write_manifest


def changed(update: int) -> Translator:
    """The translator with other weights for every update."""
    translator = random_translator()
    with torch.no_grad():
        for parameter in translator.model.parameters():
            parameter.mul_(1 + update / 100)
    translator.model.freeze()
    return translator


def save_checkpoint(run: Path, update: int) -> None:
    place = SavedCheckpoints(run).path(update)
    place.mkdir(parents=True)
    save_weights(place / WEIGHTS, weights_of(changed(update).model))
    save_weights(place / OPTIMIZER, {})
    write_json(place / PROGRESS, {})
    write_manifest(place, CHECKPOINT_KIND, fingerprint={})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints of the updates 10 and 20; its model is that of update 0."""
    translator, folder = random_translator(), tmp_path / "a-run"
    model: Any = translator.model
    save_model(folder / "model", ModelFolder(model, model.config, translator.source, translator.target), "card")
    save_checkpoint(folder, 10)
    save_checkpoint(folder, 20)
    return folder


def test_a_checkpoint_has_its_own_translation_and_attention(run: Path) -> None:
    studio = Served([of_folder(run, "a-run")], {"a-run": str(run)})
    assert studio.get("models")["models"][0]["run"] == 0
    listed = studio.get("runs")["runs"][0]["checkpoints"]
    assert listed == [{"index": 0, "update": 10}, {"index": 1, "update": 20}]
    for index, update in ((None, 0), (1, 20), (0, 10), (1, 20)):
        alone, chosen = changed(update), {} if index is None else {"checkpoint": index}
        maps = alone.attention(TEXT, **OPTIONS)
        recorded = studio.record(TEXT, search=OPTIONS, **chosen)
        assert (recorded["output"], recorded["checkpoint"]) == (maps.translation, index)
        probabilities = [step["probability"] for step in recorded["steps"]]
        np.testing.assert_allclose(probabilities, [step.chosen.probability for step in maps.steps if step.chosen], 1e-4)
        answer = studio.client.get(f"/studio/api/passes/{recorded['id']}/attention/encoder/2")
        weights = maps.maps["encoder"][1]
        np.testing.assert_allclose(shares(answer.content, weights.shape), weights, rtol=0, atol=1e-5)
        found = studio.view(recorded, "intervention", words=[0])
        assert found["original"]["tokens"] == recorded["produced_tokens"]
    missing = studio.post("passes", {"model": 0, "text": TEXT, "checkpoint": 2}, status=422)
    assert "no checkpoint 2" in missing["error"]["message"]
    studio.close()


def test_few_checkpoints_stay_in_memory(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = LoadedCheckpoints(run)
    assert models.load(10) is models.load(10)
    assert models.load(20) is not models.load(10)
    monkeypatch.setattr(inspector, "CHECKPOINT_BYTES", 1)
    kept = models.load(20)
    assert models.load(20) is kept
    with pytest.raises(MissingInput, match="30"):
        models.load(30)
    with pytest.raises(MissingInput):
        LoadedCheckpoints(None).load(10)


def test_a_layer_that_fits_into_no_message_is_rejected() -> None:
    longest = int(np.sqrt(MAX_LINE * 3 / 8 / 16))
    check_array(16, longest - 5, longest - 5)
    with pytest.raises(SettingsError, match=r"1,7\d\d tokens"):
        check_array(16, longest + 5, longest + 5)
