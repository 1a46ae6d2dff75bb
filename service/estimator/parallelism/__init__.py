"""How does each axis of parallelism divide the work? One file an axis: its rules, and what it sends."""
