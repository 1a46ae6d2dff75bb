"""nanotron's predict_memory: parts, and the peaks before and after the first optimizer step."""

from service.estimator.other_tools.tool import ACTIVATIONS, OPTIMIZER, WEIGHTS, MethodLine, Term, ToolAnswer
from service.estimator.question import Model
from service.estimator.resolve import ResolvedQuestion

MIB = 2.0**20
"""Bytes of a MiB, in which the tool prints. Source: definition."""


def rank_zero_layers(model: Model, pipeline: int) -> int:
    """Layers of the first pipeline rank, which takes blocks until it has its share of the cost.

    Formula: min(ceil((L c + V h) / (p c)), max(0, L + 2 - p)),  c = 4 h^2 + 3 h f
    Args:
        pipeline: stages, p [1]
    Returns: layers [1]
    Source: nanotron/predict_memory: embedding free, head V h, one block at least for each later rank

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> rank_zero_layers(LLAMA_3_8B, 1), rank_zero_layers(LLAMA_3_8B, 4)
    (32, 9)
    """
    layers, hidden, width = model.num_hidden_layers, model.hidden_size, model.intermediate_size or 0
    if pipeline == 1:
        return layers
    heads = model.num_attention_heads
    cost = 4 * heads * (hidden // heads) * hidden + 3 * hidden * width
    share = -(-(layers * cost + model.vocab_size * hidden) // (pipeline * cost))
    return max(0, min(share, layers + 2 - pipeline))


def first_rank_parameters(model: Model, pipeline: int) -> int:
    """Parameters of the first pipeline rank before tensor parallelism: no norms, heads as wide as h / a.

    Formula: V h (2 if untied and p = 1, else 1) + L_0 (h^2 (1 + 2 g / a) + h^2 + 3 h f)
    Args:
        pipeline: stages, p [1]
    Returns: parameters [1]
    Source: nanotron/predict_memory

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> first_rank_parameters(LLAMA_3_8B, 1)
    8029995008
    """
    hidden, width = model.hidden_size, model.intermediate_size or 0
    tables = 2 if pipeline == 1 and not model.tie_word_embeddings else 1
    attention = 2 * hidden**2 + 2 * hidden**2 * model.key_value_heads // model.num_attention_heads
    return tables * model.vocab_size * hidden + rank_zero_layers(model, pipeline) * (attention + 3 * hidden * width)


def kept_activation_bytes(model: Model, tokens: int, pipeline: int, flying: int) -> float:
    """Activations of the first pipeline rank before tensor parallelism.

    Formula: layer: 2 s b h (4 f / h + 8 + 2 g / a);  p = 1: L layers + 8 s b V;  p > 1: min(p, m) L_0 layers
    Args:
        tokens: tokens of one micro-batch, s b [token]
        pipeline: stages, p [1]
        flying: micro-batches in flight, min(p, m) [1]
    Returns: bytes [byte]
    Source: nanotron/predict_memory

    >>> from service.estimator.samples import LLAMA_3_8B
    >>> kept_activation_bytes(LLAMA_3_8B, 4096, 1, 1) / 2**20
    27048.0
    """
    hidden, width = model.hidden_size, model.intermediate_size or 0
    factor = 4 * width / hidden + 8 + 2 * model.key_value_heads / model.num_attention_heads
    activations = rank_zero_layers(model, pipeline) * 2.0 * tokens * hidden * factor
    return activations + 8.0 * tokens * model.vocab_size if pipeline == 1 else flying * activations


def answer(resolved: ResolvedQuestion) -> ToolAnswer:
    """The tool's own terms and totals for a question."""
    model, recipe, layout = resolved.question.model, resolved.question.recipe, resolved.question.layout
    data, tensor, pipeline = layout.data, layout.tensor, layout.pipeline
    weights_bytes = 2.0 * first_rank_parameters(model, pipeline) / tensor
    replicas = 1 if layout.zero_stage == 0 else data
    tokens, flying = recipe.sequence_length * recipe.micro_batch, min(pipeline, int(resolved.degrees.accumulation))
    overhead = (72 + 32 * recipe.micro_batch) * MIB
    weights = Term("Model BF16", weights_bytes, WEIGHTS)
    master = Term("FP32 Parameters", 2 * weights_bytes / replicas, ("master_weights",))
    gradients = Term("FP32 Gradients", 2 * weights_bytes, ("gradients",))
    moments = Term("Optimizer States", 4 * weights_bytes / replicas, OPTIMIZER)
    buffers = Term("DDP Gradient Buffers", weights_bytes if layout.zero_stage == 0 and data > 1 else 0.0)
    workspace = Term("Overhead", overhead, ("workspace",))
    activations = Term("Activations", kept_activation_bytes(model, tokens, pipeline, flying) / tensor, ACTIVATIONS)
    before = sum(term.bytes for term in (weights, master, gradients, buffers))
    after = before + moments.bytes + workspace.bytes
    return ToolAnswer(
        terms=(weights, master, gradients, moments, buffers, workspace, activations),
        totals=(
            MethodLine(name="Memory Before Optimizer States", bytes=before),
            MethodLine(name="Memory After Optimizer States", bytes=after),
            MethodLine(name="Peak Memory (TBI)", bytes=after + activations.bytes),
        ),
    )
