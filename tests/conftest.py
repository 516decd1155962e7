"""One thread for every test process, pytest-xdist's workers too: the models of the tests are too small for a second.

Results differ between thread counts, so this also makes a test say the same on every machine.
"""

from __future__ import annotations

import torch

torch.set_num_threads(1)
