"""Does the first step, whose optimizer has no states yet, peak as much lower as was measured?

Megatron-LM's functional test gpt3_7b_tp1_pp4_memory_speed logs the peak after every step on its last rank: one GPU of
the last of 4 stages, whose optimizer 2 replicas share.
"""

import pytest

from service.catalogue import shipped_catalogue
from service.estimator import estimate
from service.estimator.resolve import resolve
from service.estimator.run.stages import timeline
from service.evaluation.questions import question_of
from service.evaluation.scoring import predict
from tests.evaluation.rows import ROWS

GOLDEN = ROWS["M-megatron_functional-0009"]

FIRST_STEP_PEAK_BYTES = 52_931_256_320
"""mem-max-allocated-bytes after step 1, NVIDIA/Megatron-LM@d98e8a64 golden_values_dev_dgx_h100.json."""

LATER_PEAK_BYTES = 60_720_852_992
"""The same after step 2 and every later one."""

MOMENT_BYTES = 8
"""The two moments of one parameter, fp32."""

REPLICAS = 2


def test_first_step_lacks_the_states_of_the_optimizer() -> None:
    question, _ = question_of(GOLDEN, shipped_catalogue())
    last = timeline(resolve(question))[-1]
    gap = last.later_step_peak_bytes - last.first_step_peak_bytes
    parameters = estimate(question).parameters.stages[-1].per_rank
    assert gap == pytest.approx(MOMENT_BYTES * parameters / REPLICAS, rel=1e-3)
    assert gap == pytest.approx(LATER_PEAK_BYTES - FIRST_STEP_PEAK_BYTES, rel=1e-3)


def test_both_peaks_are_the_measured_ones() -> None:
    last = predict(GOLDEN, shipped_catalogue()).memory.stages[-1]
    assert last.first_step_peak_bytes == pytest.approx(FIRST_STEP_PEAK_BYTES, rel=0.005)
    assert last.allocated_peak_bytes == pytest.approx(LATER_PEAK_BYTES, rel=0.005)
