"""The EleutherAI cookbook's calc_transformer_mem: model, gradients, optimizer, buffers, activations."""

from service.estimator.other_tools.tool import ACTIVATIONS, OPTIMIZER, WEIGHTS, Term, ToolAnswer
from service.estimator.question import Model
from service.estimator.resolve import ResolvedQuestion
from service.estimator.software.precision import DTYPE_BYTES

BUCKET_NUMBERS = 5e8
"""Numbers of a ZeRO all-gather bucket. Source: EleutherAI/cookbook@827ee3b, default zero_allgather_bucket_size."""

LIVE_NUMBERS = 1e9
"""Parameters that ZeRO-3 keeps gathered. Source: EleutherAI/cookbook@827ee3b, default zero3_max_live_params."""

STATE_BYTES = {"adamw": 12, "sgd-momentum": 8, "muon": 8}
"""Bytes of fp32 copy and moments for each parameter. Source: EleutherAI/cookbook@827ee3b."""


def counted_parameters(model: Model, sequence_length: int, expert: int) -> int:
    """Parameters that the tool counts, experts divided by the expert degree: two tables, positions, eight h of norms.

    Formula: 2 V h + s h + 8 h L + 2 h + 2 (1 + g / a) L h^2 + n L h f E / e,  n = 3 if gated, else 2
    Args:
        sequence_length: s [token]
        expert: expert degree, e [1]
    Returns: parameters [1]
    Source: EleutherAI/cookbook@827ee3b calc/calc_transformer_mem.py

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> counted_parameters(LLAMA_3_8B, 8192, 1)
    8064606208
    """
    hidden, layers = model.hidden_size, model.num_hidden_layers
    tables = 2 * model.vocab_size * hidden + sequence_length * hidden
    norms = 8 * hidden * layers + 2 * hidden
    attention = int(2 * (1 + model.key_value_heads / model.num_attention_heads) * layers * hidden**2)
    width = model.expert_width or model.intermediate_size or 0
    mlp = (3 if model.gated_mlp else 2) * layers * hidden * width
    return tables + norms + attention + mlp * max(1, model.num_experts) // expert


def kept_activation_bytes(resolved: ResolvedQuestion) -> float:
    """Activations of every layer of one micro-batch, whatever the pipeline.

    Formula: s b h L (34 + 5 a s / h), without the second term under selective recompute; / t with sequence parallelism
    Returns: bytes [byte]
    Source: EleutherAI/cookbook@827ee3b calc/calc_transformer_mem.py

    >>> from service.estimator.samples import sample_resolved
    >>> kept_activation_bytes(sample_resolved()) / 2**30
    354.0
    """
    model, recipe, layout = resolved.question.model, resolved.question.recipe, resolved.question.layout
    keeps_scores = resolved.workload.recompute.granularity == "none"
    scores = 5 * model.num_attention_heads * recipe.sequence_length / model.hidden_size if keeps_scores else 0
    tokens = recipe.sequence_length * recipe.micro_batch
    saved_bytes = tokens * model.hidden_size * model.num_hidden_layers * (34.0 + scores)
    return saved_bytes / layout.tensor if layout.sequence_parallel else saved_bytes


def buffer_bytes(zero_stage: int, gpus: int) -> float:
    """Communication buffers of ZeRO on one GPU.

    Formula: 2 x 5e8 from stage 1, and 2 x 1e9 at stage 3; none on one GPU
    Args:
        zero_stage: ZeRO stage [1]
        gpus: GPUs in all [1]
    Returns: bytes [byte]
    Source: EleutherAI/cookbook@827ee3b calc/calc_transformer_mem.py

    >>> buffer_bytes(3, 8), buffer_bytes(3, 1)
    (3000000000.0, 0.0)
    """
    if gpus == 1 or zero_stage == 0:
        return 0.0
    return 2 * (BUCKET_NUMBERS + (LIVE_NUMBERS if zero_stage == 3 else 0.0))


def answer(resolved: ResolvedQuestion) -> ToolAnswer:
    """The tool's own terms and totals for a question."""
    model, recipe, layout = resolved.question.model, resolved.question.recipe, resolved.question.layout
    gpus, stage = resolved.question.cluster.gpus, layout.zero_stage
    numbers = counted_parameters(model, recipe.sequence_length, layout.expert)
    over = [gpus if stage >= reached else 1 for reached in (3, 2, 1)]
    weights = 2.0 * numbers / (layout.tensor * layout.pipeline) / over[0]
    gradients = DTYPE_BYTES[recipe.gradient_dtype] * numbers / over[1]
    states = float(STATE_BYTES[recipe.optimizer] * numbers) / over[2]
    return ToolAnswer(
        terms=(
            Term("Activation Memory", kept_activation_bytes(resolved), ACTIVATIONS),
            Term("Model Memory", weights, WEIGHTS),
            Term("Gradient Memory", gradients, ("gradients",)),
            Term("Optimizer Memory", states, ("master_weights", *OPTIMIZER)),
            Term("Communication Memory", buffer_bytes(stage, gpus), ("gathered_weights",)),
        )
    )
