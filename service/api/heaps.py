"""How many heaps does the C library keep? Few, however many threads answer: what is free in one serves no other."""

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8
"""Name of the setting. Source: glibc's malloc.h."""
MOST_HEAPS = 2
"""Heaps. Source: a choice; glibc makes up to eight a core, and only one thread runs Python at a time."""


def bound_heaps() -> None:
    """Have threads share a few heaps: call it before any thread starts. Only glibc takes this setting."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MOST_HEAPS)
