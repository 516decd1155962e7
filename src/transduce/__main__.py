"""`python -m transduce`, which is also what torchrun starts."""

from transduce.cli.main import entry

entry()
