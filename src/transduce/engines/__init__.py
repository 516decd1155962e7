"""The same answers from another machine: engines that search faster than PyTorch, for what they can do."""
