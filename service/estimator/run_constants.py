"""Defaults of a run: failures, restarts and power."""

FAILURES_PER_GPU_HOUR = 419 / (54 * 24 * 16_384)
"""Interruptions of a job for each GPU-hour: 419 unexpected ones in 54 days on 16,384 H100, one for 50,677 GPU-hours.
Source: Llama 3, arXiv:2407.21783, section 3.3.4."""

PREEMPTIONS_PER_INSTANCE_HOUR = 2.2e-4
"""How often one spot machine is taken back: 15 % of machines in a month, -ln(1 - 0.15) / 730 h. Rates differ by
machine, place and month, from below 5 % to far above 20 % in a month.
Source: middle of the 10 to 20 % of the AWS Spot Instance Advisor for p5 (H100) of 2025-05-01, as told by
thundercompute.com, GPU spot instance interruption rates."""

CHECKPOINT_SECONDS = 30.0
"""Time that training stands still for one checkpoint. Source: a round figure for asynchronous checkpoints."""

RESTART_SECONDS = 600.0
"""Time from an interruption to the first new step. Source: a round figure; Llama 3's > 90 % goodput implies less."""

HOST_POWER_FRACTION = (10_200 - 8 * 700) / (8 * 700)
"""Rated power of hosts, NVSwitches, network and fans over that of the GPU boards: a whole DGX H100 has 10.2 kW.
Source: NVIDIA DGX H100 data sheet."""

BUSY_POWER_FRACTION = 0.76
"""Power of a node that trains over its rated power; the highest seen of an H100 node is 8.4 of 10.2 kW, 0.82.
Source: Newkirk et al. 2025, arXiv:2506.14551, abstract; Latif et al. 2024, arXiv:2412.08602, abstract."""

IDLE_POWER_FRACTION = 0.2
"""Power of a node that waits over its rated power. Source: an assumption; a round figure."""

POWER_USAGE_EFFECTIVENESS = 1.1
"""Data-centre overhead. Source: LLaMA, arXiv:2302.13971, table 15; Patterson et al. 2021, arXiv:2104.10350, table 4."""
