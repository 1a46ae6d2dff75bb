"""Measurements that may be compared with each other."""

from dataclasses import asdict, replace

from service.calibration.records import Environment
from service.features.measurements.measurements import fingerprint_of

PROCESSOR = Environment(kind="cpu", device="AMD EPYC", devices=1, memory_bytes=8e9, threads=2)
WIDE = replace(PROCESSOR, instructions=("avx2", "avx512f"))


def test_processors_of_one_name_and_other_instructions_are_two() -> None:
    assert fingerprint_of(asdict(WIDE)) != fingerprint_of(asdict(PROCESSOR))
    assert fingerprint_of(asdict(WIDE)) == fingerprint_of({**asdict(WIDE), "instructions": ["avx2", "avx512f"]})


def test_what_nobody_told_tells_nothing_apart() -> None:
    """Measurements from before instructions were told go on being compared with those of devices that have none."""
    before = asdict(PROCESSOR)
    del before["instructions"]
    assert fingerprint_of(before) == fingerprint_of(asdict(PROCESSOR))


def test_what_differs_from_minute_to_minute_does_not_count() -> None:
    later = replace(PROCESSOR, clock_hz=2e9, throttle_reasons=("hw_slowdown",), other_processes=1)
    assert fingerprint_of(asdict(later)) == fingerprint_of(asdict(PROCESSOR))
