"""Claims and tables of papers, measured (`transduce reproduce`), and the demo."""
