"""How often was the verdict right: of jobs that ran, and of jobs that ran out of memory?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from service.calibration.tables import MeasuredRow
from service.units import BYTES, said
from service.workflows.accuracy.answers import VerdictCounts, Verdicts, WrongVerdict
from service.workflows.accuracy.judged import Judged
from service.workflows.accuracy.predicted import Predicted

MARGIN_FRACTION = 0.02
"""By how much a predicted peak may exceed the usable memory of a job that ran."""

ROOMY_FRACTION = 0.85
"""Share of the usable memory below which a job that ran had room to spare."""


def verdicts_of(judged: Sequence[Judged]) -> Verdicts:
    """How verdicts met what happened.

    Args:
        judged: what became of each row, one entry a row

    Returns:
        the counts, of all rows and of those told in full
    """
    told = _counts([one for one in judged if one.is_told])
    every = _counts(judged)
    return Verdicts(**{field.name: getattr(every, field.name) for field in fields(every)}, full_config=told)


def _counts(judged: Sequence[Judged]) -> VerdictCounts:
    ran = [one for one in judged if not one.ran_out and one.predicted is not None]
    roomy = [one for one in ran if _is_roomy(one)]
    out = [one for one in judged if one.ran_out]
    words = Counter(_verdict(one) for one in ran)
    roomy_at_risk = sum(_verdict(one) == "at_risk" for one in roomy)
    beyond = [one for one in ran if _exceeds(one)]
    missed = [one for one in out if _verdict(one) == "fits"]
    return VerdictCounts(
        ran=len(ran),
        ran_fits=words["fits"],
        ran_at_risk=words["at_risk"],
        ran_out_of_memory=words["out_of_memory"],
        ran_beyond_margin=len(beyond),
        roomy=len(roomy),
        roomy_at_risk=roomy_at_risk,
        roomy_at_risk_fraction=roomy_at_risk / len(roomy) if roomy else None,
        ran_out=len(out),
        ran_out_told=sum(_verdict(one) in ("at_risk", "out_of_memory") for one in out),
        ran_out_not_expressible=dict(sorted(Counter(one.reason for one in out if one.reason).items())),
        wrong=tuple(_wrong(one.row, one.predicted) for one in (*missed, *beyond) if one.predicted is not None),
    )


def _wrong(row: MeasuredRow, predicted: Predicted) -> WrongVerdict:
    memory = predicted.memory
    amount = f"{said(memory.device_peak_bytes.value, BYTES)} predicted of {said(memory.usable_bytes, BYTES)} usable"
    told = (*predicted.nearly, row.text("quality"), row.text("notes"))
    reason = "; ".join([amount, *(text for text in told if text)])
    return WrongVerdict(id=row.text("id"), outcome=row.text("outcome"), verdict=predicted.verdict, reason=reason)


def _verdict(one: Judged) -> str:
    return one.predicted.verdict if one.predicted is not None else ""


def _exceeds(one: Judged) -> bool:
    if one.predicted is None:
        return False
    memory = one.predicted.memory
    return memory.device_peak_bytes.value > memory.usable_bytes * (1 + MARGIN_FRACTION)


def _is_roomy(one: Judged) -> bool:
    if one.predicted is None or one.measured is None:
        return False
    return one.measured < ROOMY_FRACTION * one.predicted.memory.usable_bytes
