"""The kinds of work: what each needs of data, loss, validation and evaluation, behind one protocol."""
