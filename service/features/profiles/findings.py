"""Findings of a profile: what costs time, what explains a difference from the prediction, and what to change."""

import re
from collections.abc import Iterator, Mapping, Sequence

from service.answers.profiles import ComparedPart, ProfileFinding
from service.calibration.profiles import Profile
from service.units import SECONDS, in_units

LEAST_FRACTION = 0.02
"""Share of the step from which something is worth a finding. Source: a choice; steps vary by about as much."""
LONGEST_NAME = 64

FUSED = re.compile("flash|fmha|attention|sdpa|mem_eff", re.IGNORECASE)
"""Names of fused kernels of attention. Source: torch 2.13, FlashAttention, cuDNN."""

SHORT_KERNEL_SECONDS = 20e-6
"""Mean length of kernels below which the host cannot launch them as fast as they run. Source: a choice; a launch takes
some 5 us, an operation of torch 10 to 20 us."""


def findings_of(profile: Profile, compared: Sequence[ComparedPart], kernel: str | None) -> tuple[ProfileFinding, ...]:
    """The findings, the most seconds first; `kernel` is the attention kernel of the question."""
    least = LEAST_FRACTION * profile.step.seconds
    every = [*_losses(profile), *_differences(profile, compared, kernel)]
    return tuple(sorted((one for one in every if abs(one.seconds) >= least), key=lambda one: -abs(one.seconds)))


def _losses(profile: Profile) -> Iterator[ProfileFinding]:
    step, seconds = profile.step, {part.kind: part.seconds for part in profile.parts}
    yield ProfileFinding(
        kind="waiting_for_data",
        seconds=step.waiting_for_data_seconds if profile.on == "host" else _gap_seconds(profile, "waiting_for_data"),
        message=f"the step waits {_s(step.waiting_for_data_seconds)} for its data loader",
        fix="load ahead: DataLoader(num_workers=4 or more, prefetch_factor=4, pin_memory=True), tokens prepared before",
    )
    yield ProfileFinding(
        kind="no_overlap",
        seconds=step.could_overlap_seconds,
        message=f"{_s(step.exposed_communication_seconds)} of {_s(step.communicating_seconds)} of communication run "
        f"beside no computation, and {_s(step.could_overlap_seconds)} of computation that runs alone could hide them",
        fix="let them overlap: --overlap-grad-reduce and --overlap-param-gather (Megatron), prefetching (FSDP), "
        "overlap_comm (DeepSpeed), smaller buckets (DDP bucket_cap_mb)",
    )
    yield ProfileFinding(
        kind="copies",
        seconds=seconds.get("copies", 0.0) if profile.on == "device" else 0.0,
        message=f"copies take {_s(seconds.get('copies', 0.0))} in which nothing is computed",
        fix="copy from pinned memory with non_blocking=True, and keep tensors on the device",
    )
    if profile.on == "device":
        yield _idle(profile, max(seconds.get("idle", 0.0) - _gap_seconds(profile, "waiting_for_data"), 0.0))


def _idle(profile: Profile, idle: float) -> ProfileFinding:
    """Why the device is idle: waits of the host, launches, or the host's own code."""
    step, waiting = profile.step, _gap_seconds(profile, "synchronisation")
    kernels = sum(part.calls for part in profile.parts)
    if waiting > idle / 4:
        message = f"the device idles {_s(idle)}, {_s(waiting)} of it while the host waits for it or for a copy"
        fix = "take .item(), .cpu(), print and torch.cuda.synchronize out of the step; log every hundredth step"
        return ProfileFinding(kind="synchronisation", seconds=idle, message=message, fix=fix)
    if kernels and step.computing_seconds / kernels < SHORT_KERNEL_SECONDS:
        mean = _s(step.computing_seconds / kernels)
        message = f"the device idles {_s(idle)}: {kernels} kernels and copies of {mean} each are faster than the host"
        fix = "a larger micro-batch, torch.compile or CUDA graphs, fused optimizer and norms"
        return ProfileFinding(kind="launch_bound", seconds=idle, message=message, fix=fix)
    others = (gap.host for gap in profile.gaps if gap.kind != "waiting_for_data")
    busiest = next((f", most of all in {host[:LONGEST_NAME]}" for host in others), "")
    message = f"the device idles {_s(idle)} while the host does other work{busiest}"
    return ProfileFinding(
        kind="idle", seconds=idle, message=message, fix="move that work out of the step; see profile.gaps"
    )


def _gap_seconds(profile: Profile, kind: str) -> float:
    return sum(gap.seconds for gap in profile.gaps if gap.kind == kind)


SLOWER: Mapping[str, tuple[str, str]] = {
    "gemm": (
        "matrix products take",
        "check the number format of the kernels (fp32 where bf16 is meant), the clock and power limit of the GPU, and "
        "sizes that are no multiples of 64; a launch check measures the products, a calibration learns from them",
    ),
    "attention": (
        "attention takes",
        "check which kernel runs, and set recipe.attention to it; sliding windows and documents need a kernel that "
        "skips masked blocks",
    ),
    "elementwise": (
        "norms, activations, casts and the loss take",
        "fuse them: torch.compile, Liger kernels, fused norms and cross entropy; or state in recipe.stack what is not",
    ),
    "optimizer": (
        "the optimizer takes",
        "use its fused form, e.g. AdamW(fused=True); gradient clipping in a loop over tensors counts here too",
    ),
    "exposed_communication": (
        "exposed communication, in which a rank also waits for others, takes",
        "compare traces of several ranks: where one computes longer, the others wait; else run nccl-tests and set "
        "cluster.inter_node_bytes_per_s to what the network gives",
    ),
}  # fmt: skip
"""Words and fix of a part that takes longer than predicted; idle time and copies have their own."""


def _differences(profile: Profile, compared: Sequence[ComparedPart], kernel: str | None) -> Iterator[ProfileFinding]:
    longest = {part.kind: part.longest or "" for part in profile.parts}
    for part in compared:
        is_fused = part.kind != "attention" or kernel in (None, "eager") or FUSED.search(longest.get("attention", ""))
        if not is_fused and part.predicted_seconds:
            message = f"no fused kernel of attention ran, and {_s(part.predicted_seconds)} of {kernel} are predicted"
            fix = "turn on the fused kernel (attn_implementation, --use-flash-attn), or set recipe.attention to eager"
            lost = max(part.measured_seconds - part.predicted_seconds, part.predicted_seconds)
            yield ProfileFinding(kind="attention", seconds=lost, message=message, fix=fix)
        elif part.difference_seconds > 0 and part.kind in SLOWER:
            words, fix = SLOWER[part.kind]
            most = f", most of it in {longest[part.kind][:LONGEST_NAME]}" if longest.get(part.kind) else ""
            message = f"{words} {_s(part.measured_seconds)}{most}, and {_s(part.predicted_seconds)} are predicted"
            yield ProfileFinding(kind=part.kind, seconds=part.difference_seconds, message=message, fix=fix)
        elif part.difference_seconds < 0:
            name = part.kind.replace("_", " ")
            message = f"{name} takes {_s(part.measured_seconds)}, and {_s(part.predicted_seconds)} are predicted"
            fix = f"check that the question describes this run: it predicts {', '.join(part.predicted_parts)}"
            yield ProfileFinding(kind="faster", seconds=part.difference_seconds, message=message, fix=fix)


def _s(seconds: float) -> str:
    return in_units(seconds, SECONDS)
