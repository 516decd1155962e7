"""Attention: dot-product, additive and multi-head attention, and efficient kernels."""
