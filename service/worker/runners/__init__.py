"""Places where a worker runs what it is given: one file each."""
