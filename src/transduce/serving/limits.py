"""Limits that are checked before any work is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, and how much of everything a server holds at a time."""

    max_body_bytes: int = 1 << 20
    max_large_bodies_bytes: int = 1 << 26
    """Bytes of all bodies above 64 KiB that are arriving; smaller ones are bounded by the connections."""
    max_json_depth: int = 16
    max_json_values: int = 10_000
    """Strings and commas of a JSON body outside of its strings: a bound of the time that parsing takes."""
    max_texts: int = 128
    """Texts, prompts or inputs of one request."""
    max_characters: int = 50_000
    """Characters of all texts of one request."""
    max_terms: int = 256
    """Entries of a glossary; also forbidden words and stop strings."""
    max_beam_size: int = 16
    max_n_best: int = 16
    max_length: int = 1024
    """Tokens to write for each text."""
    max_queue_tokens: int = 131_072
    """Tokens that the waiting requests of one process may reserve: beam size × maximum length + source, of each."""
    max_active_rows: int = 128
    """Rows (sentences × beam) that one engine steps at a time."""
    max_requests: int = 256
    """Requests that are in progress or waiting in one process of a model."""
    timeout: float = 60.0
    """Seconds after which a request is given up."""
    max_connections: int = 2048
    max_unread_bytes: int = 1 << 28
    """Bytes of all answers that clients have not read yet; above it, those who read most slowly are disconnected."""
    max_pass_bytes: int = 1 << 28
    """Bytes of the studio's recorded passes; those used least recently leave first."""
