"""Are the counted peaks that ship with the package predicted within three parts in a hundred?"""

from service.calibration.live_bytes import counted_peaks
from service.evaluation.measured import judged_peaks

WITHIN = 0.03


def test_every_counted_peak_is_predicted() -> None:
    judged = judged_peaks()
    assert {one.counted.model for one in judged} == {"gpt2-124m", "smollm2-135m", "qwen3-0.6b"}
    assert {(one.counted.layers, one.counted.step) for one in judged} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    far = [one for one in judged if abs(one.error_fraction) > WITHIN]
    assert not far


def test_counted_peaks_name_their_source() -> None:
    assert all(one.source.startswith("own measurement: ") and "torch" in one.source for one in counted_peaks())
