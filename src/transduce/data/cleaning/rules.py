"""Settings of cleaning: a switch for each detector, and its threshold."""

from __future__ import annotations

import pydantic

from transduce.config import Config


class CleaningConfig(Config):
    """Which pairs of a raw corpus are removed or repaired. Thresholds adapt to the corpus where they can."""

    max_length: int = pydantic.Field(default=2000, ge=1, le=1_000_000)
    """Maximum characters of a side."""
    min_letters: float = pydantic.Field(default=0.25, ge=0, le=1)
    """Minimum fraction of letters among the characters of a side that are not spaces; 0 switches it off."""
    copies: bool = True
    """Remove pairs whose sides are equal apart from case and punctuation, if they have a dozen letters or more."""
    ratio: bool = True
    """Remove pairs whose lengths in characters differ by more than the typical ratio of the corpus explains."""
    max_deviation: float = pydantic.Field(default=6.0, ge=1)
    """Maximum deviation from that ratio, in standard deviations estimated from the corpus."""
    language: bool = True
    """Remove pairs with a side in another language (py3langid, extra `clean`) or script, and
    repair pairs whose sides are swapped."""
    duplicates: bool = True
    """Remove pairs that occurred before, apart from case, punctuation and spaces."""
    near_duplicates: bool = True
    """Remove pairs that are nearly equal to an earlier one (MinHash)."""
    similarity: float = pydantic.Field(default=0.85, ge=0.5, le=1)
    """Minimum similarity of near-duplicates: fraction of shared character trigrams, over both sides."""
    misaligned: bool = True
    """Remove pairs whose sides are not translations of each other, judged by which words translate which in the rest of
    the corpus."""
    repair: bool = True
    """Realign targets that are shifted by some lines, and swap sides that are swapped."""
    max_shift: int = pydantic.Field(default=4, ge=1, le=20)
    """Maximum shift of a target, in lines."""
