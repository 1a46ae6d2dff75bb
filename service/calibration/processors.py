"""What would a data sheet say of a processor that computes in place of a GPU?

Processors are measured too, and their measurements need something to be predicted from before anything is fitted.
"""

from collections.abc import Mapping

from service.calibration.records import Environment
from service.estimator.question import Gpu
from service.estimator.software.precision import Format

PROCESSOR = "cpu"
"""Name that stands for any processor, in the place of a GPU's."""

CYCLE_FLOP = 32
"""FLOP of one core and cycle where nothing tells more: two units that multiply and add eight numbers each.
Source: Agner Fog, Instruction tables, FMA of 256 bits on Intel Haswell and later, and on AMD Zen 2 and later."""

INSTRUCTION_FLOP: Mapping[str, tuple[int, tuple[Format, ...]]] = {
    "avx2": (32, ("fp32", "bf16", "fp16")),
    "asimd": (32, ("fp32", "bf16", "fp16")),
    "avx512f": (64, ("fp32", "bf16", "fp16")),
    "avx512_bf16": (128, ("bf16",)),
    "avx512_fp16": (128, ("fp16",)),
    "amx_bf16": (1024, ("bf16",)),
    "amx_fp16": (1024, ("fp16",)),
}
"""FLOP of one core and cycle at most, by its instructions, and the formats that they do it in: two units of 256 or 512
bits (four of 128 on ARM), or one of tiles. Source: Agner Fog, Instruction tables, FMA on Intel Skylake-X and AMD Zen 5,
twice the numbers in half the bits; Arm, Neoverse V2 Software Optimization Guide; Intel, Accelerate AI Workloads with
Intel AMX, page 4: 1,024 in bf16 beside 64 in fp32."""

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
        its rates by the number of its threads and what each does in a cycle

    >>> from dataclasses import replace
    >>> from service.calibration.records import Environment
    >>> told = Environment(kind="cpu", device="EPYC", devices=1, memory_bytes=8e9, threads=2)
    >>> processor_of(told).fp32_flop_per_s
    192000000000.0
    >>> processor_of(replace(told, instructions=("avx2", "avx512f"))).fp32_flop_per_s
    384000000000.0
    """
    cycles_per_s = (environment.threads or 1) * (environment.most_clock_hz or CLOCK_HZ)
    memory_bytes = max(environment.memory_bytes, 1e6)
    return Gpu(
        slug=PROCESSOR,
        architecture=PROCESSOR,
        memory_bytes=memory_bytes,
        usable_bytes=memory_bytes,
        memory_bytes_per_s=MEMORY_BYTES_PER_S,
        fp32_flop_per_s=cycles_per_s * _cycle_flop(environment, "fp32"),
        bf16_flop_per_s=cycles_per_s * _cycle_flop(environment, "bf16"),
        fp16_flop_per_s=cycles_per_s * _cycle_flop(environment, "fp16"),
        link_bytes_per_s=LOOPBACK_BYTES_PER_S,
        scale_up_gpus=1,
        inter_node_bytes_per_s=LOOPBACK_BYTES_PER_S,
        host_bytes_per_s=LOOPBACK_BYTES_PER_S,
        board_watts=BOARD_WATTS,
    )


def _cycle_flop(environment: Environment, number_format: Format) -> int:
    """FLOP of one core and cycle in a number format."""
    known = (INSTRUCTION_FLOP[name] for name in environment.instructions if name in INSTRUCTION_FLOP)
    return max([CYCLE_FLOP, *(flop for flop, formats in known if number_format in formats)])
