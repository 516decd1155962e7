"""Attention: kernels that mix values, and the heads that ask, offer and answer."""
