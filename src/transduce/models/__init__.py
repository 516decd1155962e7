"""Models, one file per paper; `interface` has their protocols, `catalog` the table of all."""
