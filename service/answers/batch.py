"""Batches: how many questions one request may hold, and of which kinds."""

from typing import Literal

BatchKind = Literal["estimate", "memory", "flops", "gpu-hours", "check"]
"""Which answer a question wants: that of the route of the same name."""

MOST_QUESTIONS = 1_000
"""Questions of one request. Source: a choice; they take some seconds of a core."""
