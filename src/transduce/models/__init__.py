"""One paper, one file; `interface` says what each must offer, `catalog` lists them."""
