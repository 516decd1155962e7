"""What a run reads and is checked by, according to what its corpus was prepared for: pairs, or texts for a reader."""

from __future__ import annotations

from transduce.data.prepared import Prepared
from transduce.errors import SettingsError
from transduce.models.interface import Model
from transduce.tasks.text_encoding.config import TextEncodingConfig
from transduce.training.config import TrainingConfig
from transduce.training.feed import Feed
from transduce.training.reading_feed import ReadingFeed
from transduce.training.reading_validation import ReadingValidator
from transduce.training.validation import Validator
from transduce.training.workers import Workers


def build_feed(prepared: Prepared, config: TrainingConfig, model: Model) -> Feed | ReadingFeed:
    """Return the batches of a run."""
    if isinstance(prepared.data, TextEncodingConfig):
        return ReadingFeed(prepared, config, model.device)
    return Feed(prepared, config, model.device, (model.max_source, model.max_target))


def build_validator(
    prepared: Prepared, config: TrainingConfig, workers: Workers
) -> Validator | ReadingValidator | None:
    """Return what judges a run on its validation split; None where there is none."""
    if prepared.validation is None:
        return None
    kind = ReadingValidator if isinstance(prepared.data, TextEncodingConfig) else Validator
    return kind(workers, prepared, prepared.validation, config)


def build_watcher(prepared: Prepared, config: TrainingConfig, workers: Workers) -> Validator | None:
    """Return what judges a run on pairs that are watched; None where there are none."""
    if prepared.extra_validation is None:
        return None
    if prepared.validation is None:
        raise SettingsError("pairs are watched beside validation pairs, and there are none; give some")
    return Validator(workers, prepared, prepared.extra_validation, config)
