"""Files that are complete or absent: atomic writes, manifests, locks, the journal."""
