"""What describes another tool: its formula, its answer, its known defects, and what its formula does not read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.complete import CompleteLayout
from service.estimator.model.build import layer_type, mlp_type
from service.estimator.model.training import trains_everything
from service.estimator.question import Model, OffloadName, OptimizerName, PrecisionName, ScheduleName, ToolName
from service.estimator.resolve import ResolvedQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodLine:
    """One number of a tool, under its own name."""

    name: str
    """What the tool calls it."""
    bytes: float
    """Bytes of one GPU, as the tool counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodVariant:
    """One row of a tool's table of options."""

    name: str
    """The options."""
    gpu_bytes: float
    """Bytes of one GPU."""
    cpu_bytes: float
    """Bytes of the host memory of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What another tool says of a question, beside our own estimate of it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    method: ToolName
    """Name of the method."""
    tool: str
    """The tool that computes so."""
    source: str
    """Where its formula stands."""
    lines: tuple[MethodLine, ...]
    """Its terms."""
    totals: tuple[MethodLine, ...]
    """What it makes of them: its phases, sizes and totals."""
    variants: tuple[MethodVariant, ...]
    """Its rows for other options, where it prints a table of them."""
    peak_bytes: float
    """The bytes that it says one GPU needs."""
    ours_bytes: float
    """Our own estimate: live tensors of the fullest GPU at the peak, memory.allocated_peak_bytes."""
    difference_fraction: float
    """peak_bytes / ours_bytes - 1."""
    main_reason: str
    """The term in which the two differ most, with the bytes of both."""
    known_defects: tuple[str, ...]
    """What the tool leaves out or counts wrongly, whatever the question."""


WEIGHTS = ("weights", "frozen_weights", "weight_copies")
OPTIMIZER = ("optimizer_states", "optimizer_scales", "step_gradients")
STATES = (*WEIGHTS, "gradients", "master_weights", *OPTIMIZER)
ACTIVATIONS = ("activations", "recomputed_activations", "logits")
"""Kinds of our own lines that a tool's terms stand for."""


@dataclass(frozen=True, slots=True)
class Term:
    """One number of a tool, and the lines of our own estimate that mean the same."""

    name: str
    """What the tool calls it."""
    bytes: float
    """Bytes of one GPU, as the tool counts them."""
    kinds: tuple[str, ...] = ()
    """Kinds of our own lines."""
    is_counted: bool = True
    """Whether the tool's peak holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What a tool says of one question."""

    terms: tuple[Term, ...]
    """Its terms."""
    totals: tuple[MethodLine, ...] = ()
    """What it makes of them."""
    variants: tuple[MethodVariant, ...] = ()
    """Its rows for other options."""

    @property
    def peak_bytes(self) -> float:
        """Bytes that it says one GPU needs [byte]."""
        return sum(term.bytes for term in self.terms if term.is_counted)


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that a question may ask and a formula does not read."""

    name: str
    """Code of the refusal."""
    field: str
    """Field to blame."""
    holds: Callable[[ResolvedQuestion], bool]
    """Whether the formula reads all that the question says here."""
    words: Callable[[str, ResolvedQuestion], tuple[str, str]]
    """For a tool by its name: what it cannot say and why it matters; what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One other tool that answers questions about memory."""

    tool: str
    """Its name."""
    meaning: str
    """What it computes, in one line."""
    source: str
    """Where its formula stands."""
    answer: Callable[[ResolvedQuestion], ToolAnswer]
    """Its formula."""
    limits: tuple[Limit, ...]
    """What its formula does not read."""
    known_defects: tuple[str, ...]
    """What it leaves out or counts wrongly, a sentence each."""


MIXED: tuple[PrecisionName, ...] = ("bf16-mixed", "fp16-mixed")
"""Half-precision weights with fp32 states beside them."""


def _one_of(names: tuple[str | int, ...]) -> str:
    return " or ".join(map(str, names))


def _splits(axis: str) -> Limit:
    def degree(resolved: ResolvedQuestion) -> int:
        return int(getattr(resolved.question.layout, axis) or 1)

    return Limit(
        f"method_splits_over_{axis}",
        f"layout.{axis}",
        lambda resolved: degree(resolved) == 1,
        lambda tool, resolved: (
            f"{tool} has no {axis} degree, so it would count what {degree(resolved)} ranks share whole",
            f"use {axis} 1",
        ),
    )


TENSOR, CONTEXT, PIPELINE, VIRTUAL_PIPELINE, EXPERT = map(
    _splits, ("tensor", "context", "pipeline", "virtual_pipeline", "expert")
)

TRAINING = Limit(
    "method_trains_everything",
    "recipe.method",
    lambda resolved: trains_everything(resolved.workload.method),
    lambda tool, _: (
        f"{tool} counts gradients and states for every parameter, and here some are frozen",
        "use method full without frozen parts",
    ),
)

FP32_GRADIENTS = Limit(
    "method_accumulates_in_fp32",
    "recipe.gradient_dtype",
    lambda resolved: resolved.question.recipe.gradient_dtype == "fp32",
    lambda tool, resolved: (
        f"{tool} counts 4 bytes for each gradient, and {resolved.question.recipe.gradient_dtype} takes 2",
        "use gradient_dtype fp32",
    ),
)

FLASH = Limit(
    "method_keeps_no_scores",
    "recipe.attention",
    lambda resolved: (
        resolved.question.recipe.attention != "eager" or resolved.workload.recompute.modules == ("core_attn",)
    ),
    lambda tool, _: (
        f"{tool} has no term for attention scores, and eager attention keeps them",
        "use attention flash, or the selective recompute that drops them",
    ),
)

NO_DROPOUT = Limit(
    "method_keeps_no_masks",
    "recipe.dropout_fraction",
    lambda resolved: resolved.question.recipe.dropout_fraction == 0,
    lambda tool, _: (f"{tool} has no term for dropout masks", "use dropout_fraction 0"),
)

SEQUENCE_PARALLEL = Limit(
    "method_splits_norms",
    "layout.sequence_parallel",
    lambda resolved: resolved.question.layout.tensor == 1 or bool(resolved.question.layout.sequence_parallel),
    lambda tool, resolved: (
        f"{tool} divides all activations by the tensor degree {resolved.question.layout.tensor}, and without "
        "sequence_parallel norms stay whole",
        "use sequence_parallel true",
    ),
)

ALL_REPLICAS = Limit(
    "method_shards_over_all_replicas",
    "layout.shard_group",
    lambda resolved: resolved.question.layout.zero_stage == 0 or _shards_over_all(resolved.question.layout),
    lambda tool, resolved: (
        f"{tool} shards over every replica, and here groups of {resolved.question.layout.shard_group} do",
        "leave shard_group out",
    ),
)

ONE_LENGTH = Limit(
    "method_reads_one_length",
    "recipe.stages",
    lambda resolved: not resolved.run_stages,
    lambda tool, _: (
        f"{tool} counts the activations of one batch and one length, and here they change during the run",
        "leave stages out, and ask each of them as a recipe of its own",
    ),
)

EVEN_LAYERS = Limit(
    "method_deals_layers_itself",
    "layout.stage_layers",
    lambda resolved: resolved.question.layout.stage_layers is None,
    lambda tool, _: (f"{tool} decides itself how many layers a stage has", "leave stage_layers out"),
)

NODES = Limit(
    "method_fills_nodes",
    "cluster.gpus",
    lambda resolved: resolved.question.cluster.gpus % resolved.question.cluster.gpus_per_node == 0,
    lambda tool, resolved: (
        f"{tool} counts whole nodes, and {resolved.question.cluster.gpus} GPUs do not fill nodes of "
        f"{resolved.question.cluster.gpus_per_node}",
        "use a multiple of gpus_per_node",
    ),
)


def _shards_over_all(layout: CompleteLayout) -> bool:
    return layout.shard_group == (layout.data or 1) * layout.context


def _named(
    name: str, field: str, known: tuple[str, ...], given: Callable[[ResolvedQuestion], str | None], why: str
) -> Limit:
    return Limit(
        name,
        field,
        lambda resolved: given(resolved) in known,
        lambda tool, resolved: (f"{tool} {why} {given(resolved)}", f"use {_one_of(known)}"),
    )


def precisions(*known: PrecisionName) -> Limit:
    """The limit of a formula whose bytes of a parameter are those of some precision recipes."""
    return _named(
        "method_counts_the_precision",
        "recipe.precision",
        known,
        lambda resolved: resolved.question.recipe.precision,
        "has no bytes of a parameter for",
    )


def optimizers(*known: OptimizerName) -> Limit:
    """The limit of a formula that knows the states of some optimizers."""
    return _named(
        "method_counts_the_optimizer",
        "recipe.optimizer",
        known,
        lambda resolved: resolved.question.recipe.optimizer,
        "does not know the states of",
    )


def recomputes(*known: str) -> Limit:
    """The limit of a formula that knows some ways to recompute."""
    return _named(
        "method_recomputes_so",
        "recipe.recompute",
        known,
        _recompute,
        "has no activations for recompute",
    )


def _recompute(resolved: ResolvedQuestion) -> str:
    rule = resolved.workload.recompute
    if rule.granularity != "selective" or rule.modules == ("core_attn",):
        return rule.granularity
    return f"selective ({', '.join(rule.modules)})"


def schedules(*known: ScheduleName) -> Limit:
    """The limit of a formula that counts the micro-batches in flight of some schedules."""
    return Limit(
        "method_runs_the_schedule",
        "layout.schedule",
        lambda resolved: resolved.question.layout.pipeline == 1 or resolved.question.layout.schedule in known,
        lambda tool, resolved: (
            f"{tool} does not count the micro-batches that {resolved.question.layout.schedule} has in flight",
            f"use {_one_of(known)}",
        ),
    )


def shards(*known: int) -> Limit:
    """The limit of a formula that knows some ZeRO stages; one replica shards nothing whatever its stage."""
    return Limit(
        "method_shards_so",
        "layout.zero_stage",
        lambda resolved: resolved.question.layout.shard_group == 1 or resolved.question.layout.zero_stage in known,
        lambda tool, resolved: (
            f"{tool} has no formula for ZeRO stage {resolved.question.layout.zero_stage} over "
            f"{resolved.question.layout.shard_group} ranks",
            f"use zero_stage {_one_of(known)}",
        ),
    )


def offloads(*known: OffloadName) -> Limit:
    """The limit of a formula that knows what of a rank may live in host memory."""
    return _named(
        "method_offloads_so",
        "layout.offload",
        known,
        lambda resolved: resolved.question.layout.offload,
        "does not say what is left on the GPU with offload",
    )


_ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")
"""Layers of attention, which all keep and hold the same."""


def _mixers(model: Model) -> list[str]:
    """Kinds of layers that are not attention alone."""
    kinds = dict.fromkeys(layer_type(model, layer) for layer in range(model.num_hidden_layers))
    return [kind for kind in kinds if kind not in _ATTENDING]


def _mlps(model: Model) -> list[str]:
    return list(dict.fromkeys(mlp_type(model, layer) for layer in range(model.num_hidden_layers)))


def _has_equal_experts(model: Model) -> bool:
    lone = not (model.shared_expert_intermediate_size or model.moe_latent_size)
    return not model.num_experts or (lone and _mlps(model) == ["sparse"])


DENSE = Limit(
    "method_counts_experts",
    "model.num_experts",
    lambda resolved: resolved.question.model.num_experts == 0,
    lambda tool, resolved: (
        f"{tool} has one MLP a layer, and the model has {resolved.question.model.num_experts} experts",
        "ask about a dense model",
    ),
)

EQUAL_EXPERTS = Limit(
    "method_counts_uneven_experts",
    "model.num_experts",
    lambda resolved: _has_equal_experts(resolved.question.model),
    lambda tool, _: (
        f"{tool} gives every layer the same routed experts and nothing beside them; this model has dense layers, "
        "shared experts or experts on a latent too",
        "ask about a model whose layers all have routed experts alone",
    ),
)

EXPERTS_AS_TENSORS = Limit(
    "method_splits_experts_as_tensors",
    "layout.expert_tensor",
    lambda resolved: (
        not resolved.question.model.num_experts
        or resolved.question.layout.expert_tensor == resolved.question.layout.tensor
    ),
    lambda tool, resolved: (
        f"{tool} divides experts by the tensor degree {resolved.question.layout.tensor} like all else, and here by "
        f"{resolved.question.layout.expert_tensor}",
        f"use expert_tensor {resolved.question.layout.tensor}",
    ),
)

HEADS = Limit(
    "method_counts_latent_attention",
    "model.kv_lora_rank",
    lambda resolved: resolved.question.model.kv_lora_rank is None,
    lambda tool, _: (
        f"{tool} counts projections of whole heads, and latent attention has none",
        "ask about a model with plain heads",
    ),
)

ATTENTION = Limit(
    "method_counts_the_mixers",
    "model.layer_types",
    lambda resolved: not _mixers(resolved.question.model),
    lambda tool, resolved: (
        f"{tool} gives every layer attention, and the model has {', '.join(_mixers(resolved.question.model))}",
        "ask about a model of attention layers",
    ),
)

ONE_MLP = Limit(
    "method_counts_one_mlp_a_layer",
    "model.mlp_layer_types",
    lambda resolved: set(_mlps(resolved.question.model)) <= {"dense", "sparse"},
    lambda tool, _: (
        f"{tool} gives every layer one MLP, dense or sparse, and some layers here have none or both",
        "ask about a model with one MLP a layer",
    ),
)

GATED = Limit(
    "method_counts_plain_mlps",
    "model.gated_mlp",
    lambda resolved: resolved.question.model.gated_mlp,
    lambda tool, _: (
        f"{tool} counts three matrices for each MLP, and this model has two",
        "ask about a model with gated MLPs",
    ),
)

NO_DEPTHS = Limit(
    "method_counts_prediction_depths",
    "model.num_nextn_predict_layers",
    lambda resolved: resolved.question.model.num_nextn_predict_layers == 0,
    lambda tool, resolved: (
        f"{tool} has no multi-token-prediction depths, and the model trains "
        f"{resolved.question.model.num_nextn_predict_layers}",
        "use num_nextn_predict_layers 0",
    ),
)

NORMS = Limit(
    "method_counts_the_norms",
    "model.normalization",
    lambda resolved: resolved.question.model.normalization in ("rmsnorm", "layernorm"),
    lambda tool, resolved: (
        f"{tool} has rmsnorm and layernorm, and the model {resolved.question.model.normalization}",
        "ask about a model with one of the two",
    ),
)

PLAIN_EMBEDDING = Limit(
    "method_counts_projected_embeddings",
    "model.word_embed_proj_dim",
    lambda resolved: resolved.question.model.word_embed_proj_dim is None,
    lambda tool, _: (
        f"{tool} counts an embedding as wide as the model, and here it is projected",
        "leave word_embed_proj_dim out",
    ),
)


def plain(*others: Limit) -> tuple[Limit, ...]:
    """The limits of a formula over the sizes of a plain decoder: attention, one MLP a layer, a plain embedding."""
    return (ATTENTION, ONE_MLP, PLAIN_EMBEDDING, *others)
