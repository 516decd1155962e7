"""Files that are whole or absent: atomic writes, manifests, locks, the journal."""
