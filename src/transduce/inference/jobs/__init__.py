"""Translating files of any size: windows of segments, resumable output, calibration."""
