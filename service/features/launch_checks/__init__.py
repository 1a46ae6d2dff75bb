"""Launch checks: the kernels of a job, measured before it starts."""
