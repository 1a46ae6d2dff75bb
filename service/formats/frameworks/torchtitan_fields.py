"""torchtitan's settings of recipe and layout: shared rules, rules by version, registered models, pipeline stages.

Source: torchtitan 0.2.2 config/job_config.py; torchtitan 0.3.0 and pytorch/torchtitan@b5bcd76 config/configs.py;
torchtitan 0.2.2 and 0.3.0, distributed/pipeline_parallel.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.estimator.complete import CompleteQuestion
from service.estimator.parallelism.pipeline import partition_layers
from service.estimator.question import Model
from service.estimator.software.stacks import software_of
from service.formats.rules import (
    COMMON_RULES,
    NOTHING,
    Fragment,
    Rule,
    Rules,
    chooses,
    combined,
    not_expressible,
    only,
    only_stack,
    stack_default,
    steps_of,
    writes,
)

SCHEDULES = {
    "1f1b": "1F1B",
    "interleaved-1f1b": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zero-bubble": "ZBVZeroBubble",
    "dualpipe": "DualPipeV",
}
"""Names of pipeline schedules in torch.distributed.pipelining."""


def schedule(value: Any, question: CompleteQuestion) -> Fragment:
    """Rule of the schedule."""
    if question.layout.pipeline == 1:
        return NOTHING
    note = f"torch's {SCHEDULES[value]} runs two chunks on each rank, the question one"
    name = ("parallelism.pipeline_parallel_schedule", SCHEDULES[value])
    return Fragment((name,), assumptions=(note,) if value in ("zero-bubble", "dualpipe") else ())


def chunks(value: Any, question: CompleteQuestion) -> Fragment:
    """Rule of chunks: looped schedules have two a rank unless layers are counted."""
    if value <= 2 or has_custom_split(question):
        return NOTHING
    layout = question.layout
    ends = layout.embedding_in_split + layout.loss_in_split
    layers = (question.model.num_hidden_layers + ends) // (layout.pipeline * value)
    return Fragment((("parallelism.pipeline_parallel_layers_per_stage", layers),))


def has_custom_split(question: CompleteQuestion) -> bool:
    """Whether the partition is neither even nor that of ends that count as layers."""
    layout = question.layout
    return layout.stage_layers is not None and partition_layers(layout, question.model) != layout.stage_layers


def end(name: str) -> Rule:
    """Rule of an end of the model that counts as a layer."""

    def rule(value: Any, question: CompleteQuestion) -> Fragment:
        if question.layout.pipeline == 1 or has_custom_split(question):
            return NOTHING
        return Fragment(((f"parallelism.pipeline_parallel_{name}_stage_less_layers", int(value)),))

    return rule


def stage_modules(head: str) -> Rule:
    """Rule of a partition given as module lists."""

    def rule(value: Any, question: CompleteQuestion) -> Fragment:
        if not has_custom_split(question):
            return NOTHING
        names = iter(range(question.model.num_hidden_layers))
        chunks = [[f"layers.{next(names)}" for _ in range(layers)] for layers in value]
        chunks[0].insert(0, "tok_embeddings")
        chunks[-1] += ["norm", head]
        return Fragment((("parallelism.module_fqns_per_model_part", chunks),))

    return rule


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """A model of torchtitan's registry."""

    module: str
    """Its family: model.name up to 0.2, --module from 0.3 on."""
    flavor: str
    """Its size: model.flavor up to 0.2."""
    config: str
    """Its configuration: --config from 0.3 on; empty if there is none."""
    slug: str
    """Its name in the catalogue."""
    sizes: tuple[int, ...]
    """Layers, width, query heads, key and value heads, width of the MLP, rows of the embedding, experts."""


_LLAMA, _QWEN = 128_256, 151_936

REGISTERED = (
    RegisteredModel("llama3", "8B", "llama3_8b", "llama-3.1-8b", (32, 4096, 32, 8, 14336, _LLAMA, 0)),
    RegisteredModel("llama3", "70B", "llama3_70b", "llama-3.1-70b", (80, 8192, 64, 8, 28672, _LLAMA, 0)),
    RegisteredModel("llama3", "405B", "llama3_405b", "llama-3.1-405b", (126, 16384, 128, 8, 53248, _LLAMA, 0)),
    RegisteredModel("qwen3", "0.6B", "qwen3_0_6b", "qwen3-0.6b", (28, 1024, 16, 8, 3072, _QWEN, 0)),
    RegisteredModel("qwen3", "1.7B", "qwen3_1_7b", "qwen3-1.7b", (28, 2048, 16, 8, 6144, _QWEN, 0)),
    RegisteredModel("qwen3", "14B", "qwen3_14b", "qwen3-14b", (40, 5120, 40, 8, 17408, _QWEN, 0)),
    RegisteredModel("qwen3", "32B", "qwen3_32b", "qwen3-32b", (64, 5120, 64, 8, 25600, _QWEN, 0)),
    RegisteredModel("qwen3", "30B-A3B", "qwen3_30b_a3b", "qwen3-30b-a3b", (48, 2048, 32, 4, 6144, _QWEN, 128)),
)
"""Models to match, by their sizes. Source: torchtitan 0.2.2 and 0.3.0, models/llama3/__init__.py,
models/qwen3/__init__.py and their config_registry.py."""


def registered_model(model: Model) -> RegisteredModel | None:
    """The registered model with the sizes of a model."""
    sizes = (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.key_value_heads,
        model.intermediate_size or 0,
        model.vocab_size,
        model.num_experts,
    )
    family = "qwen3" if model.qk_norm == "per_head_dim" else "llama3"
    plain = model.kv_lora_rank is None and not model.layer_types and not model.sliding_window
    return next((row for row in REGISTERED if plain and (row.module, row.sizes) == (family, sizes)), None)


def model_named(module: str, flavor: str) -> RegisteredModel | None:
    """The registered model of a name."""
    return next((row for row in REGISTERED if (row.module, row.flavor) == (module, flavor)), None)


NO_SETTING = "choose a value that torchtitan has, or change its code"


def replica_degrees(question: CompleteQuestion) -> tuple[int, int] | None:
    """Replicating and sharding degrees of data parallelism."""
    layout = question.layout
    data = layout.data
    if layout.zero_stage == 0:
        return data, 1
    shards, left = divmod(layout.shard_group, layout.context)
    return None if left or not shards or data % shards else (data // shards, shards)


def _replicas(value: Any, question: CompleteQuestion) -> Fragment:
    found = replica_degrees(question)
    if found is None:
        return Fragment((("parallelism.data_parallel_shard_degree", value),))
    names = ("parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree")
    return Fragment(tuple(zip(names, found, strict=True)))


def _groups(value: Any, question: CompleteQuestion) -> Fragment:
    if replica_degrees(question) is not None:
        return NOTHING
    return not_expressible(
        f"groups that shard hold whole context groups, and {value} ranks are not a multiple of "
        f"{question.layout.context}; the file shards over all replicas",
        "make shard_group a multiple of the context degree",
    )


def _stage(value: Any, question: CompleteQuestion) -> Fragment:
    if value == 0 and question.layout.context > 1:
        return not_expressible("context ranks always shard weights", "use zero_stage 3")
    if value in (0, 3):
        return NOTHING
    return not_expressible(
        "weights are sharded with the optimizer or not at all; the file shards them", "use zero_stage 3 or 0"
    )


def _reshard(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.zero_stage != 3:
        return NOTHING
    return Fragment((("parallelism.fsdp_reshard_after_forward", "always" if value else "never"),))


def _precision(value: Any, question: CompleteQuestion) -> Fragment:
    mixed = "training.mixed_precision_param"
    plain = {
        "bf16-mixed": ((mixed, "bfloat16"),),
        "fp32": ((mixed, "float32"),),
        "bf16": (("training.dtype", "bfloat16"), (mixed, "bfloat16")),
    }
    if value in plain:
        return Fragment(plain[value])
    why = f"{value} is a change of the model's modules, not a setting"
    return combined(
        Fragment(plain["bf16-mixed"]), not_expressible(why, "convert the model in the configuration's function")
    )


def _gradients(value: Any, question: CompleteQuestion) -> Fragment:
    if value == "fp32" or question.recipe.precision == "bf16":
        return NOTHING
    return not_expressible(f"gradients are reduced in fp32, not in {value}", "leave gradient_dtype out")


def _graphs(value: Any, question: CompleteQuestion) -> Fragment:
    if value and question.layout.pipeline > 1:
        off = Fragment((("training.disable_cuda_graphs", True),))
        return combined(
            off, not_expressible("a step of a pipeline is not captured as a graph", "leave cuda_graphs out")
        )
    return NOTHING if value else Fragment((("training.disable_cuda_graphs", True),))


def _compiled(value: Any, question: CompleteQuestion) -> Fragment:
    """Layers and loss are compiled separately."""
    software = software_of(question.recipe)
    parts = {"model": software.implementation == "compiled", "loss": software.cross_entropy == "compiled"}
    components = [name for name, is_compiled in parts.items() if is_compiled]
    named = (("compile.enable", True), ("compile.components", components)) if components else ()
    if value in ("eager", "compiled"):
        return Fragment(named)
    return combined(Fragment(named), not_expressible(f"operations are torch's, not {value}", NO_SETTING))


def _loss(value: Any, question: CompleteQuestion) -> Fragment:
    if value in ("eager", "compiled", "loss-parallel"):
        return NOTHING
    return not_expressible(f"the loss of the kind {value} is chosen in code", NO_SETTING)


def _tensor_overlap(name: str) -> Rule:
    def rule(value: Any, question: CompleteQuestion) -> Fragment:
        if not value or question.layout.tensor == 1:
            return NOTHING
        compiled = Fragment((("compile.enable", True), (name, True)))
        if software_of(question.recipe).implementation == "compiled":
            return compiled
        return combined(
            compiled, not_expressible("exchanges in pieces come with compiled layers alone", "name that implementation")
        )

    return rule


def _sequence(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.tensor == 1 or value:
        return NOTHING
    return not_expressible("tensor ranks always split norms along the sequence", "set sequence_parallel to true")


def _switch(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.tensor == 1 or value:
        return NOTHING
    return Fragment((("parallelism.enable_sequence_parallel", False),))


def _rotation(value: Any, question: CompleteQuestion) -> Fragment:
    names = {"all-gather": "allgather", "ring": "alltoall"}
    if question.layout.context == 1:
        return NOTHING
    if value not in names:
        return not_expressible(f"context ranks exchange keys and values, and not heads as {value} does", NO_SETTING)
    return Fragment((("parallelism.context_parallel_rotate_method", names[value]),))


def _no_rotation(value: Any, question: CompleteQuestion) -> Fragment:
    if question.layout.context == 1 or value == "all-gather":
        return NOTHING
    return not_expressible(
        f"context ranks gather keys and values, and not by {value}", "set context_method to all-gather"
    )


def _expert_tensor(value: Any, question: CompleteQuestion) -> Fragment:
    if not question.model.num_experts:
        return NOTHING
    return Fragment((("parallelism.expert_tensor_parallel_degree", value),))


def _no_expert_tensor(value: Any, question: CompleteQuestion) -> Fragment:
    if not question.model.num_experts or value == 1 or question.layout.expert == 1:
        return NOTHING
    return not_expressible("experts' matrices are not split beside the experts", "set expert_tensor to 1")


SHARED_RULES: Rules = {
    **COMMON_RULES,
    "recipe.training_tokens": writes("training.steps", lambda _, q: steps_of(q)),
    "recipe.precision": _precision,
    "recipe.gradient_dtype": _gradients,
    "recipe.attention": only(
        ("flash",), "torch chooses the attention kernel by itself; {value} cannot be asked for", NO_SETTING
    ),
    "recipe.dropout_fraction": only((0.0,), "torchtitan's models have no dropout", "set it to 0"),
    "recipe.moment_dtype": only((None,), "moments have the format of the weights", "leave it out"),
    "recipe.master_dtype": only((None,), "sharded weights are the master copy", "leave it out"),
    "recipe.fp8_weights": only((False,), "weights stay in their own format", "leave it out"),
    "recipe.expert_capacity_factor": only((None,), "no token is dropped by an expert", "leave it out"),
    "recipe.vocabulary_multiple": only((1,), "the vocabulary is not padded", "set it to 1"),
    "recipe.stack.name": only_stack("torchtitan", "torchtitan"),
    "recipe.stack.implementation": _compiled,
    "recipe.stack.cross_entropy": _loss,
    "recipe.stack.gradient_fusion": stack_default(
        "gradient_fusion", "products do not add to gradients themselves", NO_SETTING
    ),
    "recipe.stack.deterministic": writes("debug.deterministic", lambda value, _: value or None),
    "recipe.stack.grouped_experts": stack_default(
        "grouped_experts", "experts run as the model's code says", NO_SETTING
    ),
    "recipe.stack.expert_overlap": only((False,), "it comes with the schedule, and cannot be asked for", NO_SETTING),
    "recipe.stack.dispatcher": only((None, "alltoall"), "tokens reach experts by all-to-all, not {value}", NO_SETTING),
    "recipe.stack.attention_mask": only((False,), "the data loader makes no mask", "leave it out"),
    "layout.data": _replicas,
    "layout.tensor": writes("parallelism.tensor_parallel_degree"),
    "layout.context": writes("parallelism.context_parallel_degree"),
    "layout.pipeline": writes("parallelism.pipeline_parallel_degree"),
    "layout.virtual_pipeline": chunks,
    "layout.expert": writes("parallelism.expert_parallel_degree"),
    "layout.zero_stage": _stage,
    "layout.shard_group": _groups,
    "layout.reshard_after_forward": _reshard,
    "layout.virtual_group": lambda value, q: (
        NOTHING
        if value == q.layout.pipeline
        else not_expressible("the schedule has groups of one pipeline", "leave virtual_group out")
    ),
    "layout.schedule": schedule,
    "layout.embedding_in_split": end("first"),
    "layout.loss_in_split": end("last"),
    "layout.offload": chooses(
        {"none": {}, "model": {"training.enable_cpu_offload": True}},
        "torchtitan offloads weights, gradients and states together, and not {value} alone",
        "use offload model, or none",
    ),
}
"""Rules of every version."""

OLD_RULES: Mapping[str, Rule] = {
    "recipe.stack.cuda_graphs": only((False,), "a step is not captured as a graph", "leave cuda_graphs out"),
    "recipe.stack.tensor_overlap": _tensor_overlap("parallelism.enable_async_tensor_parallel"),
    "layout.sequence_parallel": _sequence,
    "layout.context_method": _rotation,
    "layout.expert_tensor": _expert_tensor,
    "layout.stage_layers": stage_modules("output"),
}
"""Rules of 0.2 alone."""

NEW_RULES: Mapping[str, Rule] = {
    "recipe.stack.cuda_graphs": _graphs,
    "recipe.stack.tensor_overlap": _tensor_overlap("compile.enable_async_tensor_parallel"),
    "layout.sequence_parallel": _switch,
    "layout.context_method": _no_rotation,
    "layout.expert_tensor": _no_expert_tensor,
}
"""Rules from 0.3 on."""
