"""What would a data sheet say of a processor that computes in place of a GPU?

Processors are measured too, and their measurements need something to be predicted from before anything is fitted.
"""

from service.calibration.records import Environment
from service.estimator.gpu import Gpu

PROCESSOR = "cpu"
"""Name that stands for any processor, in the place of a GPU's."""

CYCLE_FLOP = 32
"""FLOP in fp32 of one core and cycle: two units that multiply and add eight numbers each.
Source: Agner Fog, Instruction tables, FMA of 256 bits on Intel Haswell and later, and on AMD Zen 2 and later."""

CLOCK_HZ = 3e9
"""Clock of a core where nothing tells it. Source: an assumption; server processors boost to 2.5 to 3.7 GHz."""

MEMORY_BYTES_PER_S = 20e9
"""Memory traffic of a machine of few cores: one channel of DDR4-2666 or so. Source: JEDEC JESD79-4, 21.3 GB/s."""

LOOPBACK_BYTES_PER_S = 10e9
"""What its processes send each other through memory: half of its traffic, each byte read and written.
Source: an assumption."""

BOARD_WATTS = 200.0
"""Power of such a machine. Source: an assumption; no estimate of a run rests on it."""


def processor_of(environment: Environment) -> Gpu:
    """A processor as the GPU that formulas ask.

    Args:
        environment: what a measurement was taken on

    Returns:
        its rates by the number of its threads

    >>> from service.calibration.records import Environment
    >>> told = Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9, threads=2)
    >>> processor_of(told).fp32_flop_per_s
    192000000000.0
    """
    flop_per_s = (environment.threads or 1) * CYCLE_FLOP * (environment.most_clock_hz or CLOCK_HZ)
    memory_bytes = max(environment.memory_bytes, 1e6)
    return Gpu(
        slug=PROCESSOR,
        architecture=PROCESSOR,
        memory_bytes=memory_bytes,
        usable_bytes=memory_bytes,
        memory_bytes_per_s=MEMORY_BYTES_PER_S,
        fp32_flop_per_s=flop_per_s,
        bf16_flop_per_s=flop_per_s,
        fp16_flop_per_s=flop_per_s,
        link_bytes_per_s=LOOPBACK_BYTES_PER_S,
        scale_up_gpus=1,
        inter_node_bytes_per_s=LOOPBACK_BYTES_PER_S,
        host_bytes_per_s=LOOPBACK_BYTES_PER_S,
        board_watts=BOARD_WATTS,
    )
