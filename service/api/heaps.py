"""How many heaps does the C library keep? Few, however many threads answer: what is free in one serves no other."""

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8
"""Name of the setting. Source: glibc's malloc.h."""
MOST_HEAPS = 2
"""Heaps. Source: a choice; glibc makes eight a core, and of threads that answer one holds the interpreter at a time."""


def bound_heaps() -> None:
    """Have threads share a few heaps; only glibc has a heap for each, and is told so before there are threads."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MOST_HEAPS)
