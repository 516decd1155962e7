"""The tasks, each with its data, loss, validation and evaluation, behind one interface (`training.task`)."""
