"""Which shares of its data-sheet rates does any GPU reach?"""

MEMORY_FRACTION = 0.87
"""Share of memory bandwidth that streaming kernels reach: best read rates of eight GPUs lie at 0.84-0.94.
Source: ai-dynamo/aiconfigurator@095f58a memory kernels (A100 0.87, H100 0.87, H200 0.89, B200 0.88)."""

LAUNCH_SECONDS = 5e-6
"""Fixed cost of one kernel: intercepts of 4.7 (A100) and 6 (H100) microseconds over 38,136 measured matrix products.
Source: microsoft/vidur profiling data mlp.csv, fitted."""
