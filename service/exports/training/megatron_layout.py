"""Which arguments of Megatron-LM say a layout? One rule for each field of Layout.

Source: NVIDIA/Megatron-LM@d98e8a64 (core 0.20.0) megatron/training/arguments.py, core/model_parallel_config.py.
"""

from typing import Any

from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import Question, filled
from service.estimator.software.stacks import software_of
from service.exports.said import NOTHING, Rule, Rules, Said, both, lacking, takes_only, writes

_STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}

_STAGES_FIRST = "tp-cp-ep-pp-dp"

_OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")


def _virtual(value: Any, question: Question) -> Said:
    if value == 1 or _is_listed(question):
        return NOTHING
    return Said((("--num-virtual-stages-per-pipeline-rank", value),))


def _is_listed(question: Question) -> bool:
    """Whether layers are dealt as no rule of Megatron-LM's own deals them."""
    layout = question.layout
    return layout.stage_layers is not None and partition_layers(layout, question.model) != layout.stage_layers


def _stages(value: Any, question: Question) -> Said:
    """E, the layers of each chunk as t, further depths as m, L: the chunks parted by bars."""
    if not _is_listed(question):
        return NOTHING
    chunks = [f"t*{layers}" if layers else "" for layers in value]
    chunks[0] = f"E,{chunks[0]}".rstrip(",")
    depths = question.model.num_nextn_predict_layers
    chunks[-1] = f"{chunks[-1]},{f'm*{depths},' if depths else ''}L".lstrip(",")
    return Said((("--pipeline-model-parallel-layout", "|".join(chunks)),))


def _zero(value: Any, question: Question) -> Said:
    if value == 0:
        return NOTHING
    if value == 1:
        return Said((("--use-distributed-optimizer", True),))
    fsdp = (("--use-megatron-fsdp", True), ("--data-parallel-sharding-strategy", _STRATEGIES[value]))
    return Said((*fsdp, ("--use-distributed-optimizer", True), ("--ckpt-format", "fsdp_dtensor")))


def _groups(value: Any, question: Question) -> Said:
    layout = question.layout
    replicas = filled(layout.data) * layout.context
    if layout.zero_stage == 0 or value == replicas:
        return NOTHING
    return Said((("--num-distributed-optimizer-instances", replicas // value),))


def _reshard(value: Any, question: Question) -> Said:
    if question.layout.zero_stage != 3 or value:
        return NOTHING
    return lacking("Megatron-FSDP frees gathered weights after the forward pass", "leave reshard_after_forward out")


def _offload(value: Any, question: Question) -> Said:
    optimizer = Said((("--optimizer-cpu-offload", True), ("--use-precision-aware-optimizer", True)))
    modules = ("--offload-modules", _OFFLOADED)
    waits = (("--fine-grained-offloading-max-inflight-offloads", 1),)
    in_a_graph = waits if software_of(question.recipe).cuda_graphs else ()
    activations = Said((("--fine-grained-activation-offloading", True), modules, *in_a_graph))
    found = {"none": NOTHING, "optimizer": optimizer, "activations": activations}
    if value == "optimizer-and-activations":
        return both(optimizer, activations)
    return found.get(value) or lacking("weights stay on the GPU, sharded or not", "offload the optimizer alone")


def _split(option: str) -> Rule:
    return writes(option, lambda value, q: True if value and not _is_listed(q) else None)


def _context_method(value: Any, question: Question) -> Said:
    names = {"ring": "p2p", "all-gather": "allgather", "ulysses": "a2a"}
    return NOTHING if question.layout.context == 1 else Said((("--cp-comm-type", names[value]),))


def _world(value: Any, question: Question) -> Said:
    told = f"start it as {question.cluster.gpus} processes: the data degree {value} follows from their number"
    return Said(assumptions=(told,))


def _expert_tensor(value: Any, question: Question) -> int | None:
    """Where stages come before replicas, experts have to fill one stage of a replica, though there be none."""
    layout = question.layout
    if question.model.num_experts:
        return int(value)
    is_asked = layout.rank_order == _STAGES_FIRST and layout.pipeline > 1 and layout.context > 1
    return layout.tensor * layout.context if is_asked else None


LAYOUT_RULES: Rules = {
    "layout.data": _world,
    "layout.tensor": writes("--tensor-model-parallel-size"),
    "layout.context": writes("--context-parallel-size"),
    "layout.pipeline": writes("--pipeline-model-parallel-size"),
    "layout.virtual_pipeline": _virtual,
    "layout.expert": writes("--expert-model-parallel-size"),
    "layout.expert_tensor": writes("--expert-tensor-parallel-size", _expert_tensor),
    "layout.zero_stage": _zero,
    "layout.shard_group": _groups,
    "layout.reshard_after_forward": _reshard,
    "layout.sequence_parallel": writes("--sequence-parallel", lambda value, _: True if value else None),
    "layout.context_method": _context_method,
    "layout.virtual_group": writes(
        "--microbatch-group-size-per-virtual-pipeline-stage",
        lambda value, q: None if value == q.layout.pipeline else value,
    ),
    "layout.schedule": takes_only(
        ("1f1b", "interleaved-1f1b"), "Megatron-LM runs 1f1b, interleaved or not, and not {value}", "use one of these"
    ),
    "layout.stage_layers": _stages,
    "layout.embedding_in_split": _split("--account-for-embedding-in-pipeline-split"),
    "layout.loss_in_split": _split("--account-for-loss-in-pipeline-split"),
    "layout.rank_order": writes("--use-tp-pp-dp-mapping", lambda value, _: True if value == _STAGES_FIRST else None),
    "layout.offload": _offload,
}
"""How each field of the layout is written."""
