"""One thread for every test process, pytest-xdist's workers too: the models of the tests are too small for a second.

Results differ between thread counts, so this also makes a test say the same on every machine.
"""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
# What a machine is busy with is no fault of a property: no example is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
