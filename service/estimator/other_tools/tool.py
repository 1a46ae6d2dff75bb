"""What describes another tool: its formula, its answer, its known defects, and what its formula does not read."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

from service.errors import Problem
from service.estimator.model.build import layer_type, mlp_type, trains_everything
from service.estimator.question import Model, OptimizerName, PrecisionName, ScheduleName, ToolName
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
    """One feature that a question may have and a formula does not read; a question that has it is refused.

    What a formula leaves out as a whole (activations, in those of states alone) is a known defect of the tool instead.
    """

    name: str
    """Code of the refusal."""
    field: str
    """Field to blame."""
    holds: Callable[[ResolvedQuestion], bool]
    """Whether the formula reads all that the question has here."""
    message: str
    """What the tool cannot express and why it matters, a format string over `tool` and the parts of the question."""
    fix: str
    """What to do, in the same form."""

    def problem(self, tool: str, resolved: ResolvedQuestion) -> Problem:
        """The refusal of a question by a tool."""
        question = resolved.question
        texts = (
            text.format(
                tool=tool,
                model=question.model,
                recipe=question.recipe,
                layout=question.layout,
                cluster=question.cluster,
                recompute=_recompute(resolved),
                mixers=", ".join(_mixers(question.model)),
            )
            for text in (self.message, self.fix)
        )
        message, fix = texts
        return Problem(field=self.field, code=self.name, message=message, fix=fix)


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


def _only(name: str, field: str, known: tuple[Any, ...], message: str, fix: str) -> Limit:
    """The limit of a formula that reads some values of one field."""
    value = attrgetter(field)
    return Limit(name, field, lambda resolved: value(resolved.question) in known, message, fix)


def _use(known: tuple[str | int, ...], field: str = "") -> str:
    return f"use {field}{' or '.join(map(str, known))}"


TENSOR, CONTEXT, PIPELINE, VIRTUAL_PIPELINE, EXPERT = (
    _only(
        f"method_splits_over_{axis}",
        f"layout.{axis}",
        (1,),
        f"{{tool}} has no {axis} degree, so it would count what {{layout.{axis}}} ranks share whole",
        f"use {axis} 1",
    )
    for axis in ("tensor", "context", "pipeline", "virtual_pipeline", "expert")
)
TRAINING = Limit(
    "method_trains_everything",
    "recipe.method",
    lambda resolved: trains_everything(resolved.workload.method),
    "{tool} counts gradients and states for every parameter, and here some are frozen",
    "use method full without frozen parts",
)
FP32_GRADIENTS = _only(
    "method_accumulates_in_fp32",
    "recipe.gradient_dtype",
    ("fp32",),
    "{tool} counts 4 bytes for each gradient, and {recipe.gradient_dtype} takes 2",
    "use gradient_dtype fp32",
)
FLASH = Limit(
    "method_keeps_no_scores",
    "recipe.attention",
    lambda resolved: (
        resolved.question.recipe.attention != "eager" or resolved.workload.recompute.modules == ("core_attn",)
    ),
    "{tool} has no term for attention scores, and eager attention keeps them",
    "use attention flash, or the selective recompute that drops them",
)
NO_DROPOUT = _only(
    "method_keeps_no_masks",
    "recipe.dropout_fraction",
    (0,),
    "{tool} has no term for dropout masks",
    "use dropout_fraction 0",
)
SEQUENCE_PARALLEL = Limit(
    "method_splits_norms",
    "layout.sequence_parallel",
    lambda resolved: resolved.question.layout.tensor == 1 or resolved.question.layout.sequence_parallel,
    "{tool} divides all activations by the tensor degree {layout.tensor}, and without sequence_parallel norms stay "
    "whole",
    "use sequence_parallel true",
)


def _shards_over_all(resolved: ResolvedQuestion) -> bool:
    layout = resolved.question.layout
    return layout.zero_stage == 0 or layout.shard_group == layout.data * layout.context


ALL_REPLICAS = Limit(
    "method_shards_over_all_replicas",
    "layout.shard_group",
    _shards_over_all,
    "{tool} shards over every replica, and here groups of {layout.shard_group} do",
    "leave shard_group out",
)
ONE_LENGTH = Limit(
    "method_reads_one_length",
    "recipe.stages",
    lambda resolved: not resolved.run_stages,
    "{tool} counts the activations of one batch and one length, and here they change during the run",
    "leave stages out, and ask each of them as a recipe of its own",
)
EVEN_LAYERS = _only(
    "method_deals_layers_itself",
    "layout.stage_layers",
    (None,),
    "{tool} decides itself how many layers a stage has",
    "leave stage_layers out",
)
NODES = Limit(
    "method_fills_nodes",
    "cluster.gpus",
    lambda resolved: resolved.question.cluster.gpus % resolved.question.cluster.gpus_per_node == 0,
    "{tool} counts whole nodes, and {cluster.gpus} GPUs do not fill nodes of {cluster.gpus_per_node}",
    "use a multiple of gpus_per_node",
)


def precisions(*known: PrecisionName) -> Limit:
    """The limit of a formula whose bytes of a parameter are those of some precision recipes."""
    message = "{tool} has no bytes of a parameter for {recipe.precision}"
    return _only("method_counts_the_precision", "recipe.precision", known, message, _use(known))


def optimizers(*known: OptimizerName) -> Limit:
    """The limit of a formula with the states of some optimizers."""
    message = "{tool} does not know the states of {recipe.optimizer}"
    return _only("method_counts_the_optimizer", "recipe.optimizer", known, message, _use(known))


def recomputes(*known: str) -> Limit:
    """The limit of a formula with some ways to recompute."""
    message = "{tool} has no activations for recompute {recompute}"
    return Limit(
        "method_recomputes_so", "recipe.recompute", lambda asked: _recompute(asked) in known, message, _use(known)
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
        "{tool} does not count the micro-batches that {layout.schedule} has in flight",
        _use(known),
    )


def shards(*known: int) -> Limit:
    """The limit of a formula for some ZeRO stages; one replica shards nothing whatever its stage."""
    return Limit(
        "method_shards_so",
        "layout.zero_stage",
        lambda resolved: resolved.question.layout.shard_group == 1 or resolved.question.layout.zero_stage in known,
        "{tool} has no formula for ZeRO stage {layout.zero_stage} over {layout.shard_group} ranks",
        _use(known, "zero_stage "),
    )


NO_OFFLOAD = _only(
    "method_offloads_so",
    "layout.offload",
    ("none",),
    "{tool} does not say what is left on the GPU with offload {layout.offload}",
    "use none",
)


_ATTENDING = ("full_attention", "sliding_attention", "chunked_attention")
"""Layers of attention, which all keep and hold the same."""


def _mixers(model: Model) -> list[str]:
    """Kinds of layers that are not attention alone."""
    kinds = dict.fromkeys(layer_type(model, layer) for layer in range(model.num_hidden_layers))
    return [kind for kind in kinds if kind not in _ATTENDING]


def _mlps(resolved: ResolvedQuestion) -> set[str]:
    model = resolved.question.model
    return {mlp_type(model, layer) for layer in range(model.num_hidden_layers)}


def _has_equal_experts(resolved: ResolvedQuestion) -> bool:
    model = resolved.question.model
    lone = not (model.shared_expert_intermediate_size or model.moe_latent_size)
    return not model.num_experts or (lone and _mlps(resolved) == {"sparse"})


DENSE = _only(
    "method_counts_experts",
    "model.num_experts",
    (0,),
    "{tool} has one MLP a layer, and the model has {model.num_experts} experts",
    "ask about a dense model",
)
EQUAL_EXPERTS = Limit(
    "method_counts_uneven_experts",
    "model.num_experts",
    _has_equal_experts,
    "{tool} gives every layer the same routed experts and nothing beside them; this model has dense layers, shared "
    "experts or experts on a latent too",
    "ask about a model whose layers all have routed experts alone",
)
EXPERTS_AS_TENSORS = Limit(
    "method_splits_experts_as_tensors",
    "layout.expert_tensor",
    lambda resolved: (
        not resolved.question.model.num_experts
        or resolved.question.layout.expert_tensor == resolved.question.layout.tensor
    ),
    "{tool} divides experts by the tensor degree {layout.tensor} like all else, and here by {layout.expert_tensor}",
    "use expert_tensor {layout.tensor}",
)
HEADS = _only(
    "method_counts_latent_attention",
    "model.kv_lora_rank",
    (None,),
    "{tool} counts projections of whole heads, and latent attention has none",
    "ask about a model with plain heads",
)
GATED = _only(
    "method_counts_plain_mlps",
    "model.gated_mlp",
    (True,),
    "{tool} counts three matrices for each MLP, and this model has two",
    "ask about a model with gated MLPs",
)
NO_DEPTHS = _only(
    "method_counts_prediction_depths",
    "model.num_nextn_predict_layers",
    (0,),
    "{tool} has no multi-token-prediction depths, and the model trains {model.num_nextn_predict_layers}",
    "use num_nextn_predict_layers 0",
)
NORMS = _only(
    "method_counts_the_norms",
    "model.normalization",
    ("rmsnorm", "layernorm"),
    "{tool} has rmsnorm and layernorm, and the model {model.normalization}",
    "ask about a model with one of the two",
)
PLAIN_DECODER = (
    Limit(
        "method_counts_the_mixers",
        "model.layer_types",
        lambda resolved: not _mixers(resolved.question.model),
        "{tool} gives every layer attention, and the model has {mixers}",
        "ask about a model of attention layers",
    ),
    Limit(
        "method_counts_one_mlp_a_layer",
        "model.mlp_layer_types",
        lambda resolved: _mlps(resolved) <= {"dense", "sparse"},
        "{tool} gives every layer one MLP, dense or sparse, and some layers here have none or both",
        "ask about a model with one MLP a layer",
    ),
    _only(
        "method_counts_projected_embeddings",
        "model.word_embed_proj_dim",
        (None,),
        "{tool} counts an embedding as wide as the model, and here it is projected",
        "leave word_embed_proj_dim out",
    ),
)
"""The limits of a formula over the sizes of a plain decoder: attention, one MLP a layer, a plain embedding."""
