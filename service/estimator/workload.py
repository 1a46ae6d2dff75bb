"""A model under a recipe on a cluster: table rows and the ledger, the same for every layout."""

from dataclasses import dataclass, replace

from service.estimator.complete import CompleteCluster, CompleteQuestion, CompleteRecipe, CompleteSoftware
from service.estimator.constants import STEP_CONSTANTS, StepConstants, calibrated_steps
from service.estimator.model.documents import documents_of
from service.estimator.model.ledger import Ledger, Setting, by_operation
from service.estimator.model.training import ledger_of, method_of
from service.estimator.names import AttentionName
from service.estimator.question import (
    Gpu,
    MeasuredStep,
    Method,
    Model,
    Recipe,
    Recompute,
)
from service.estimator.software.implementations import CrossEntropy, Implementation, Overlap, kernel_of
from service.estimator.software.optimizers import OPTIMIZERS, Optimizer
from service.estimator.software.precision import PRECISIONS, Precision, StateBytes, state_bytes
from service.estimator.software.stacks import (
    STACKS,
    Stack,
    cross_entropy_of,
    implementation_of,
    overlap_of,
    software_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A model under a recipe on a cluster, before any layout divides it."""

    model: Model
    recipe: CompleteRecipe
    cluster: CompleteCluster
    gpu: Gpu
    precision: Precision
    optimizer: Optimizer
    software: CompleteSoftware
    implementation: Implementation
    kernel: AttentionName
    """Attention kernel."""
    cross_entropy: CrossEntropy
    stack: Stack
    recompute: Recompute
    method: Method
    state: StateBytes
    ledger: Ledger
    vocabulary_multiple: int
    overlap: Overlap
    """What runs beside compute."""
    constants: StepConstants = STEP_CONSTANTS
    """What published steps add to data sheets and benchmarks."""

    @property
    def calibrated_steps(self) -> tuple[MeasuredStep, ...]:
        """Steps of its stack that its GPU was calibrated on."""
        return calibrated_steps(self.gpu, self.software.name, self.software.implementation)


def setting_of(recipe: CompleteRecipe, gpu: Gpu) -> Setting:
    """How a recipe and its stack carry out the operations of one sequence."""
    run, kernel = implementation_of(software_of(recipe)), kernel_in(recipe, gpu)
    precision, capacity = PRECISIONS[recipe.precision], recipe.expert_capacity_factor
    return Setting(
        tokens=recipe.sequence_length,
        element_bytes=precision.element_bytes,
        keeps_scores=kernel == "eager",
        copies_result=run.sequence_first and kernel in ("flash-1", "flash-2", "flash-3", "flash-4"),
        drops_out=recipe.dropout_fraction > 0,
        fused_norm=run.fused_norm,
        fused_activation=run.fused_activation,
        repeats_key_values=run.repeats_key_values,
        product_bytes=precision.product_bytes if run.keeps_fp8_inputs else None,
        casts_each_input=run.casts_each_input and precision.is_mixed,
        runs_transformers=run.runs_transformers,
        counts_products=by_operation(recompute_of(recipe)),
        keeps_embedding=run.keeps_embedding,
        weighs_results=run.weighs_results,
        fuses_mixer_output=run.fuses_mixer_output,
        expert_load=recipe.expert_imbalance if capacity is None else min(capacity, recipe.expert_imbalance),
        documents=documents_of(recipe),
    )


def kernel_in(recipe: Recipe, gpu: Gpu) -> AttentionName:
    """The attention kernel that a recipe runs on a GPU."""
    software = software_of(recipe)
    return kernel_of(recipe.attention, implementation_of(software), gpu, deterministic=software.deterministic)


def recompute_of(recipe: Recipe) -> Recompute:
    """The recompute rule of a recipe in its full form.

    Selective recompute without modules means what the stack means by it.
    """
    question = recipe.recompute if isinstance(recipe.recompute, Recompute) else Recompute(granularity=recipe.recompute)
    if question.granularity == "selective" and not question.modules:
        return replace(question, modules=(STACKS[software_of(recipe).name].selects,))
    return question


def workload_of(question: CompleteQuestion) -> Workload:
    """The rows and the ledger that a question names."""
    recipe, setting, method = question.recipe, setting_of(question.recipe, question.gpu), method_of(question.recipe)
    software, precision = software_of(recipe), PRECISIONS[recipe.precision]
    stack = STACKS[software.name]
    return Workload(
        overlap=overlap_of(software),
        model=question.model,
        recipe=recipe,
        cluster=question.cluster,
        gpu=question.gpu,
        precision=precision,
        optimizer=OPTIMIZERS[recipe.optimizer],
        software=software,
        implementation=implementation_of(software),
        kernel=kernel_in(recipe, question.gpu),
        cross_entropy=cross_entropy_of(software),
        stack=stack,
        recompute=recompute_of(recipe),
        method=method,
        state=state_bytes(
            precision, recipe, stack, question.gpu, keeps_copies=implementation_of(software).uses_transformer_engine
        ),
        ledger=ledger_of(question.model, setting, method),
        vocabulary_multiple=recipe.vocabulary_multiple,
    )
