"""How many connections may there be at once? Fewer than files may be open, so that the database still gets its own."""

import sys

if sys.platform != "win32":
    import resource

KEPT_FILES = 256
"""Files that are no connections of callers: the database, logs, pipes to workers, what is being read."""
ON_WINDOWS = 512
"""Connections where the system does not tell how many files a process may open."""


def held_connections(wanted: int) -> int:
    """How many connections this process can hold, once it may open as many files as the system allows it to.

    Args:
        wanted: how many there should be at most

    Returns:
        that many, or what the bound on open files leaves
    """
    if sys.platform == "win32":
        return min(wanted, ON_WINDOWS)
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + KEPT_FILES
    if resource.RLIM_INFINITY != allowed < files:
        allowed = files if most == resource.RLIM_INFINITY else min(files, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return wanted if allowed == resource.RLIM_INFINITY else max(min(wanted, allowed - KEPT_FILES), 1)
