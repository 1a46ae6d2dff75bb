"""How is what was predicted before a launch check kept until it ends? As plain JSON, and back."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.answers.launch_checks import Outlook
from service.calibration.records import Environment
from service.estimator.device_calibration import DeviceCalibration, calibrated, calibration_of
from service.estimator.question import Question
from service.workflows.devices import is_device_of
from service.workflows.launch_checks.items import Expected
from service.workflows.wire import adapter_of

_CALIBRATION = DeviceCalibration | None
_EXPECTED = tuple[Expected, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was known before a launch check ran."""

    question: Question
    """Its question, every name looked up and every default filled."""
    before: Outlook
    """What the job was expected to take."""
    expected: tuple[Expected, ...]
    """What was predicted of each measurement to come."""
    whole: tuple[Expected, ...]
    """What was predicted of a step of the whole model."""
    assumptions: tuple[str, ...]
    """What differs from the job."""
    planned: tuple[str, ...]
    """Probes that have something to measure."""
    is_matching: bool
    """Whether it was planned for the cluster's own GPU, of which its predictions are then."""
    device_names: tuple[str, ...] = ()
    """What drivers call the cluster's GPU."""
    judges_memory: bool = False
    """Whether the step probe's memory says something of the job's."""

    def is_of_cluster(self, environment: Environment | None) -> bool:
        """Whether something was measured on the cluster's own GPU, whatever it was planned for.

        Args:
            environment: what it was measured on; None where nothing ran

        Returns:
            whether it was
        """
        if environment is None or environment.kind == "cpu" or not self.is_matching:
            return False
        memory_bytes = environment.memory_bytes or None
        return is_device_of(environment.device, memory_bytes, self.device_names, self.question.gpu)

    def expected_on(self, environment: Environment | None) -> tuple[Expected, ...]:
        """What was predicted of measurements on some device.

        Args:
            environment: what was measured on; None where nothing ran

        Returns:
            the predictions; none where they are of the cluster's GPU and the device is another
        """
        return () if self.is_matching and not self.is_of_cluster(environment) else self.expected


def plan_as_json(kept: Kept) -> dict[str, Any]:
    """What was known before, as plain JSON values.

    Args:
        kept: what was known

    Returns:
        an object that `plan_from_json` reads
    """
    return {
        "question": adapter_of(Question).dump_python(_bare(kept.question), mode="json"),
        "calibration": adapter_of(_CALIBRATION).dump_python(calibration_of(kept.question.gpu), mode="json"),
        "before": adapter_of(Outlook).dump_python(kept.before, mode="json"),
        "expected": adapter_of(_EXPECTED).dump_python(kept.expected, mode="json"),
        "whole": adapter_of(_EXPECTED).dump_python(kept.whole, mode="json"),
        "assumptions": list(kept.assumptions),
        "planned": list(kept.planned),
        "is_matching": kept.is_matching,
        "device_names": list(kept.device_names),
        "judges_memory": kept.judges_memory,
    }


def plan_from_json(plan: Mapping[str, Any]) -> Kept:
    """What was known before, read back.

    Args:
        plan: what `plan_as_json` gave

    Returns:
        what was known
    """
    question = adapter_of(Question).validate_python(plan["question"])
    calibration = adapter_of(_CALIBRATION).validate_python(plan["calibration"])
    return Kept(
        question=_with_calibration(question, calibration),
        before=adapter_of(Outlook).validate_python(plan["before"]),
        expected=adapter_of(_EXPECTED).validate_python(plan["expected"]),
        whole=adapter_of(_EXPECTED).validate_python(plan["whole"]),
        assumptions=tuple(plan["assumptions"]),
        planned=tuple(plan["planned"]),
        is_matching=plan["is_matching"],
        device_names=tuple(plan.get("device_names", ())),  # plans of before have none, and count as measured elsewhere
        judges_memory=plan.get("judges_memory", False),
    )


def _bare(question: Question) -> Question:
    return replace(question, gpu=calibrated(question.gpu, None))


def _with_calibration(question: Question, calibration: DeviceCalibration | None) -> Question:
    return replace(question, gpu=calibrated(question.gpu, calibration))
