"""Translating files of any size: windows, several of them on their way, and an output that survives interruptions."""
