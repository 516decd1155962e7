"""Building blocks with plain arguments: no settings objects, no dependency on models, data or files."""
