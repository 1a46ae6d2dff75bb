"""A model under a recipe on a cluster: rows of its software and its ledger, resolved once for every layout."""

from dataclasses import dataclass, replace

from service.estimator.complete import CompleteCluster, CompleteQuestion, CompleteRecipe, CompleteSoftware
from service.estimator.constants import STEP_CONSTANTS, StepConstants, calibrated_steps
from service.estimator.model.build import is_trained_wide, ledger_of, method_of
from service.estimator.model.ledger import Ledger, SequenceSettings, by_operation, documents_of
from service.estimator.question import (
    AttentionName,
    Gpu,
    MeasuredStep,
    Method,
    Model,
    Recipe,
    Recompute,
    Software,
    Versions,
)
from service.estimator.software.precision import OPTIMIZERS, PRECISIONS, Optimizer, Precision, StateBytes, state_bytes
from service.estimator.software.stacks import (
    STACKS,
    CrossEntropy,
    Implementation,
    Stack,
    cross_entropy_of,
    implementation_of,
    kernel_of,
    requested_software,
    software_of,
)
from service.estimator.software.versions import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model under a recipe on a cluster, before any layout divides it."""

    model: Model
    recipe: CompleteRecipe
    cluster: CompleteCluster
    gpu: Gpu
    precision: Precision
    optimizer: Optimizer
    requested: Software
    """Training software as the recipe gives it."""
    software: CompleteSoftware
    """The same with every default filled except versions."""
    versions: Versions
    """Versions of its libraries; None means the newest."""
    implementation: Implementation
    kernel: AttentionName
    cross_entropy: CrossEntropy
    stack: Stack
    recompute: Recompute
    method: Method
    state: StateBytes
    ledger: Ledger
    vocabulary_multiple: int
    constants: StepConstants = STEP_CONSTANTS
    """Step-time constants, fitted on published steps."""

    @property
    def calibrated_steps(self) -> tuple[MeasuredStep, ...]:
        """Steps of its stack that its GPU was calibrated on."""
        return calibrated_steps(self.gpu, self.software.name, self.software.implementation)


def recompute_of(recipe: Recipe) -> Recompute:
    """The recompute rule of a recipe in full, with the modules that its stack recomputes if it names none."""
    rule = recipe.recompute if isinstance(recipe.recompute, Recompute) else Recompute(granularity=recipe.recompute)
    if rule.granularity == "selective" and not rule.modules:
        return replace(rule, modules=(STACKS[requested_software(recipe).name].selects,))
    return rule


INPUTS_KEPT_BEFORE = "0.44"
"""bitsandbytes keeps the input of each matrix of 4 bits before this version.
Source: bitsandbytes-foundation/bitsandbytes@9e753741 (July 2024, autograd/_functions.py MatMul4Bit)."""


def keeps_quantized_inputs(method: Method, software: Software) -> bool:
    """Whether matrices of 4 bits keep their input.

    >>> from service.estimator.question import Method
    >>> keeps_quantized_inputs(Method(name="qlora"), Software(name="transformers"))
    False
    """
    return method.name == "qlora" and not at_least((software.versions or Versions()).bitsandbytes, INPUTS_KEPT_BEFORE)


def _fuses_norm(run: Implementation, versions: Versions) -> bool:
    """Whether one kernel runs a norm."""
    library, _, version = (run.fused_norm_since or "").partition(" ")
    return run.fused_norm or bool(version and at_least(getattr(versions, library), version))


def _repeats_key_values(run: Implementation, kernel: AttentionName, versions: Versions) -> bool:
    """Whether keys and values are copied to every query head."""
    if kernel == "eager":
        return run.repeats_key_values
    needed = (each.split() for each in run.fused_repeats_before)
    return not all(at_least(getattr(versions, library), version) for library, version in needed)


FP8_BYTES = 1.0
"""Bytes of one number in fp8 without a scale. Source: OCP 8-bit floating point specification 1.0."""


def activation_input_bytes(precision: Precision, software: Software) -> float | None:
    """Bytes of one number that the activation of an MLP keeps of its input; those of an activation where None.

    Formula: the precision recipe's; 1 where the software keeps it in fp8
    Returns: bytes of one number [byte]
    Source: NVIDIA/Megatron-LM@d98e8a64 core/fusions/fused_bias_swiglu.py (fp8_input_store: a cast to e4m3, no scale)

    >>> activation_input_bytes(PRECISIONS["bf16-mixed"], Software(name="megatron-core", fp8_activation_inputs=True))
    1.0
    """
    return FP8_BYTES if software.fp8_activation_inputs else precision.activation_input_bytes


def quantizes_head(workload: Workload) -> bool:
    """Whether the head is a frozen matrix of 4 bits.

    >>> from service.estimator.samples import sample_workload
    >>> quantizes_head(sample_workload())
    False
    """
    return workload.implementation.quantizes_head and workload.method.name == "qlora"


STACKED_SINCE = "5.0"
"""transformers release from which the matrices of all experts are one parameter, which grouped products multiply by.
Source: huggingface/transformers@v5.0.0 integrations/moe.py; before, each expert is a module of a list."""


def stacks_experts(run: Implementation, versions: Versions) -> bool:
    """Whether the matrices of all experts are one parameter of transformers."""
    return run.runs_transformers and at_least(versions.transformers, STACKED_SINCE)


def workload_of(question: CompleteQuestion) -> Workload:
    """The workload of a question: its rows and its ledger, each looked up once."""
    recipe, gpu, method = question.recipe, question.gpu, method_of(question.recipe)
    software, precision, recompute = software_of(recipe), PRECISIONS[recipe.precision], recompute_of(recipe)
    stack, run = STACKS[software.name], implementation_of(software)
    kernel = kernel_of(recipe.attention, run, gpu, deterministic=software.deterministic)
    load, capacity = recipe.expert_imbalance, recipe.expert_capacity_factor
    is_cast = run.casts_each_input and precision.is_mixed
    stacks = stacks_experts(run, software.versions or Versions())
    model = question.model
    if model.scalar_head or not stack.trains_depths:
        model = replace(model, num_nextn_predict_layers=0)
    setting = SequenceSettings(
        tokens=recipe.sequence_length,
        element_bytes=precision.element_bytes,
        keeps_scores=kernel == "eager",
        copies_result=run.sequence_first and kernel in ("flash-1", "flash-2", "flash-3", "flash-4"),
        drops_out=recipe.dropout_fraction > 0,
        fused_norm=_fuses_norm(run, software.versions or Versions()),
        joins_norms=run.uses_transformer_engine and not precision.is_unpublished,
        fused_activation=run.fused_activation,
        repeats_key_values=run.always_repeats or _repeats_key_values(run, kernel, software.versions or Versions()),
        rotary_bytes=run.rotary_bytes,
        masks_windows=run.runs_transformers and recipe.attention == "flash" and kernel != "eager",
        product_bytes=precision.product_bytes if run.keeps_fp8_inputs else None,
        activation_input_bytes=activation_input_bytes(precision, software),
        result_bytes=precision.result_bytes,
        casts_each_input=is_cast,
        wide_stream=is_cast and is_trained_wide("embedding", method),
        casts_adapter_inputs=is_cast and method.name == "lora",
        drops_adapter_inputs=method.dropout_fraction > 0,
        joins_projections=run.joins_projections,
        copies_heads=run.copies_heads,
        caps_scores=run.caps_scores,
        quantizes_head=run.quantizes_head,
        stops_early=run.stops_early,
        keeps_quantized_inputs=keeps_quantized_inputs(method, software),
        wide_experts=is_cast and stacks and is_trained_wide("experts", method),
        runs_transformers=run.runs_transformers,
        stacks_experts=stacks,
        counts_products=by_operation(recompute),
        keeps_embedding=run.keeps_embedding,
        weighs_results=run.weighs_results,
        weighs_wide=run.weighs_wide,
        fuses_mixer_output=run.fuses_mixer_output,
        expert_load=load if capacity is None else min(capacity, load),
        documents=documents_of(recipe),
    )
    return Workload(
        model=model,
        recipe=recipe,
        cluster=question.cluster,
        gpu=gpu,
        precision=precision,
        optimizer=OPTIMIZERS[recipe.optimizer],
        requested=requested_software(recipe),
        software=software,
        versions=software.versions or Versions(),
        implementation=run,
        kernel=kernel,
        cross_entropy=cross_entropy_of(software),
        stack=stack,
        recompute=recompute,
        method=method,
        state=state_bytes(precision, recipe, stack, gpu, keeps_copies=run.uses_transformer_engine),
        ledger=ledger_of(model, setting, method),
        vocabulary_multiple=recipe.vocabulary_multiple,
    )
