"""Activations, parameters and logits that one rank of a stage holds for one micro-batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce

from service.estimator.degrees import OPTIMIZER_STATES, Degrees, divisors, evaluated_once, padded_vocabulary
from service.estimator.model.ledger import (
    WIDE_BYTES,
    Op,
    Ops,
    Saved,
    Split,
    WeightRole,
    by_operation,
    kept_matrices,
)
from service.estimator.numeric import Amount, Condition, both, ceil_div, either, maximum, minimum, summed, where
from service.estimator.parallelism.buckets import gathers_ends_apart
from service.estimator.parallelism.stages import (
    RankParameters,
    Stage,
    copies_on_rank,
    handed_stream_bytes,
    rank_parameters,
    stream_bytes,
)
from service.estimator.question import Recompute, RecomputeModule
from service.estimator.software.stacks import CROSS_ENTROPIES
from service.estimator.software.versions import at_least
from service.estimator.workload import Workload, keeps_quantized_inputs, quantizes_head

KEEP_ALL = Recompute(granularity="none")
"""Nothing is computed again."""


def is_dropped(saved: Saved, rule: Recompute) -> bool:
    """Whether selective recompute drops a saved tensor."""
    return rule.granularity == "selective" and any(module in rule.modules for module in saved.modules)


def kept_bytes(ops: Ops, rule: Recompute, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence that one rank keeps of some operations, context ranks not yet counted.

    Formula: sum over saved tensors that the rule does not drop of bytes / divisor
    Args:
        rule: the recompute rule; only its selective form drops tensors here
        split: divisor of each split [1]
    Returns: bytes of one sequence [byte]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, sections 4 and 5

    >>> from service.estimator.model.ledger import Op
    >>> norm = Op(name="n", kind="elementwise", split=Split.WHOLE, saved=(Saved(8, Split.WHOLE),))
    >>> kept_bytes((norm,), Recompute(granularity="none"), (1,) * 9)
    8.0
    """
    saved_bytes: Amount = 0.0
    for op in ops:
        for saved in op.saved:
            if not is_dropped(saved, rule):
                saved_bytes = saved_bytes + saved.bytes / split[saved.split]
    return saved_bytes


def _bytes(tensors: Iterable[Saved], split: tuple[Amount, ...]) -> Amount:
    return summed(tensor.bytes / split[tensor.split] for tensor in tensors)


def recomputed_layers(rule: Recompute, layers: Amount, chunks: Amount) -> Amount:
    """Layers of a stage that run their forward pass again under full recompute.

    Formula: block: min(n v, layers); uniform: all
    Args:
        layers: layers of the stage [1]
        chunks: model chunks of the stage, v [1]
    Returns: layers [1]
    Source: Megatron-LM arguments recompute-method, recompute-num-layers

    >>> recomputed_layers(Recompute(granularity="full", method="block", layers=5), 8, 1)
    5
    """
    if rule.granularity != "full":
        return 0
    return minimum(rule.layers * chunks, layers) if rule.method == "block" and rule.layers is not None else layers


def repeated_forwards(
    rule: Recompute, layers: Amount, chunks: Amount, modules: tuple[RecomputeModule, ...] = ()
) -> Amount:
    """How often recompute repeats the forward pass of some modules, and so what they send.

    Formula: full: recomputed layers / layers; selective: 1 where one of the modules is selected
    Args:
        layers: layers of the stage [1]
        chunks: model chunks of the stage [1]
        modules: the modules; none of them is ever selected where empty
    Returns: forward passes beside the first, averaged over the layers [1]
    Source: Megatron-LM tensor_parallel/random.py checkpoint (runs the forward function again, collectives included)

    >>> repeated_forwards(Recompute(granularity="full"), 8, 1), repeated_forwards(Recompute(granularity="none"), 8, 1)
    (1.0, 0.0)
    """
    if rule.granularity == "selective":
        return 1.0 if any(module in rule.modules for module in modules) else 0.0
    return recomputed_layers(rule, layers, chunks) / maximum(layers, 1)


def trained_layers(workload: Workload, counts: tuple[Amount, ...]) -> Amount:
    """Layers that the backward pass reaches: all but those with nothing trained in or before them.

    Formula: sum over the kinds of layer that have a backward pass of their layers
    Args:
        counts: layers of each kind [1]
    Returns: layers [1]
    Source: definition; torch.utils.checkpoint keeps and repeats nothing without a gradient

    >>> from service.estimator.samples import sample_workload
    >>> trained_layers(sample_workload(), (32,))
    32
    """
    kinds = zip(counts, workload.ledger.kinds, strict=True)
    return summed(count for count, ops in kinds if ops[0].in_trained_layer)


@dataclass(slots=True)
class Activations:
    """Activations of one micro-batch on one rank of a stage."""

    kept_bytes: tuple[Amount, ...]
    """What each chunk keeps for each micro-batch in flight."""
    again_bytes: tuple[Amount, ...]
    """What lives once, while a layer of each kind is computed again."""
    largest_bytes: Amount
    """What the largest layer keeps for each micro-batch."""
    largest_whole_bytes: Amount
    """What it would keep without recompute."""
    layer_bytes: list[Amount]
    """What a layer of each kind keeps for each micro-batch."""


def stage_activations(workload: Workload, degrees: Degrees, stage: Stage) -> Activations:
    """Activations that one rank keeps of one micro-batch, and those of the layers being computed again.

    Formula:
        none: sum of what each layer keeps
        selective: the same without what is dropped; once, the dropped tensors of the layer that loses most
        full: one residual stream for each group of layers; once, a group's activations beside the stream it starts
        from, less what a block's other layers keep, which have run backward by then
    Returns: bytes that each chunk keeps, and bytes that live once during recompute, by kind of layer [byte]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, table 2; Megatron-LM recompute-method uniform and block

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> found = stage_activations(sample_workload(), sample_degrees(), stage)
    >>> found.kept_bytes[0] == 32 * (17 * 2 * 8192 * 4096 + 4 * 32 * 8192), found.again_bytes
    (True, (0.0,))
    """
    whole = layer_bytes_of(workload, degrees, KEEP_ALL)
    if workload.recompute.granularity == "full":
        return _full_recompute(workload, degrees, stage, whole)
    layer_bytes = layer_bytes_of(workload, degrees, workload.recompute)
    saved_bytes = stage.each_chunk(lambda counts: _weighted(counts, layer_bytes))
    dropped = tuple(before - after for before, after in zip(whole, layer_bytes, strict=True))
    most, most_whole = largest_kind_bytes(stage, layer_bytes), largest_kind_bytes(stage, whole)
    return Activations(saved_bytes, dropped, most, most_whole, layer_bytes)


@evaluated_once
def layer_bytes_of(workload: Workload, degrees: Degrees, rule: Recompute) -> list[Amount]:
    """Bytes that one layer of each kind keeps of one micro-batch, but for full recompute."""
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    if by_operation(rule):
        return [_kept_by_operation(workload, ops, split) * scale for ops in workload.ledger.kinds]
    return [kept_bytes(ops, rule, split) * scale for ops in workload.ledger.kinds]


def _kept_by_operation(workload: Workload, ops: Ops, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence that a layer keeps under recompute by operation: its input, products and attention."""
    if not ops[0].in_trained_layer:
        return 0.0
    numbers = workload.recipe.sequence_length * workload.precision.element_bytes
    saved_bytes: Amount = numbers * workload.model.hidden_size / split[Split.SEQUENCE]
    for op in ops:
        for weight in kept_matrices(op):
            if not (workload.implementation.drops_last_product and weight.matrices == ("down_proj",)):
                divisor = split[Split.SEQUENCE if weight.matrices[0] in _OUTWARD else weight.split]
                saved_bytes = saved_bytes + numbers * weight.columns / divisor
        keeps_result = workload.kernel != "cudnn" or at_least(workload.versions.torchtitan, CUDNN_KEPT_SINCE)
        if op.kind == "attention" and keeps_result:
            saved_bytes = saved_bytes + op.result_bytes / split[op.split]
    return saved_bytes


CUDNN_KEPT_SINCE = "2025.12"
"""torchtitan's recompute by operation keeps the result of cuDNN's kernel from here on; before it is computed again.
Source: pytorch/torchtitan@b39377f9f distributed/activation_checkpoint.py."""

_OUTWARD = ("o_proj", "down_proj", "out_proj")
"""Matrices whose products lead back to the residual stream."""


def _weighted(counts: tuple[Amount, ...], layer_bytes: list[Amount]) -> Amount:
    return summed(count * one for count, one in zip(counts, layer_bytes, strict=True))


def largest_kind_bytes(stage: Stage, layer_bytes: list[Amount]) -> Amount:
    """The largest of one amount a kind of layer, among the kinds that a stage has.

    Formula: max over the kinds of layer that the stage has; 0 for a stage without layers
    Args:
        layer_bytes: the amount of one layer of each kind [byte]
    Returns: the largest [byte]
    Source: definition

    >>> stage = Stage(index=0, chunk_counts=((3, 0), (1, 2)), depths=0, is_first=True, is_last=True)
    >>> largest_kind_bytes(stage, [8.0, 24.0])
    24.0
    """
    pairs = zip(stage.kind_counts, layer_bytes, strict=True)
    return reduce(maximum, [where(count > 0, one, 0.0) for count, one in pairs])


def largest_layers_bytes(most: int, counts: tuple[Amount, ...], layer_bytes: list[Amount]) -> Amount:
    """Bytes of so many of the largest layers, or of all if they are fewer.

    Formula: min over t of n t + sum over kinds of count x max(b - t, 0), t any layer's bytes b or 0
    Args:
        most: layers, n [1]
        counts: layers of each kind [1]
        layer_bytes: bytes of a layer of each kind, b [byte]
    Returns: the sum [byte]
    Source: duality of linear programs

    >>> largest_layers_bytes(3, (2, 5), [8.0, 1.0]), largest_layers_bytes(9, (2, 5), [8.0, 1.0])
    (17.0, 21.0)
    """
    if not most:
        return 0.0
    bounds = [
        most * least + summed(n * maximum(each - least, 0.0) for n, each in zip(counts, layer_bytes, strict=True))
        for least in (0.0, *layer_bytes)
    ]
    return reduce(minimum, bounds)


def _full_recompute(workload: Workload, degrees: Degrees, stage: Stage, whole: list[Amount]) -> Activations:
    """Kept and live bytes under full recompute; `whole` is what each kind of layer would keep."""
    group = 1 if workload.recompute.method == "block" else workload.recompute.layers or 1
    stream = handed_stream_bytes(workload, degrees)

    def other_bytes(counts: tuple[Amount, ...], again: Amount) -> Amount:
        """What a chunk keeps of its layers that do not run again."""
        layers = trained_layers(workload, counts)
        return (layers - again) * _weighted(counts, whole) / maximum(layers, 1)

    def chunk_bytes(counts: tuple[Amount, ...]) -> Amount:
        again = recomputed_layers(workload.recompute, trained_layers(workload, counts), 1)
        return ceil_div(again, group) * stream + other_bytes(counts, again)

    def again_bytes(kind: int, counts: tuple[Amount, ...]) -> Amount:
        """A group of the largest layers, beside the stream it starts from; a block's others are gone by then."""
        layers = trained_layers(workload, counts)
        again = recomputed_layers(workload.recompute, layers, 1)
        others = tuple(count - 1 if place == kind else count for place, count in enumerate(counts))
        live = whole[kind] + largest_layers_bytes(group - 1, others, whole) - stream - other_bytes(counts, again)
        return where(both(again > 0, counts[kind] > 0), maximum(live, 0.0), 0.0)

    kinds = range(len(whole))
    again = tuple(reduce(maximum, stage.each_chunk(partial(again_bytes, kind))) for kind in kinds)
    layers = trained_layers(workload, stage.kind_counts)
    keeps_all = recomputed_layers(workload.recompute, layers, degrees.virtual_pipeline) < layers
    most_whole = largest_kind_bytes(stage, whole)
    most = where(layers > 0, where(keeps_all, most_whole, stream), 0.0)
    by_kind = [where(layers > 0, where(keeps_all, one, stream), 0.0) for one in whole]
    return Activations(stage.each_chunk(chunk_bytes), again, most, most_whole, by_kind)


def lasting_gradient_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of one gradient that stay from when its operation runs backward to the optimizer step.

    Those of later micro-batches are added to the first ones' and go; those that ranks share are reduced and go.

    Formula: bytes of a gradient where a step has one micro-batch and nothing is sharded; else, or with buffers, 0
    Returns: bytes of one parameter [byte]
    Source:
        torch AccumulateGrad (the first gradient of a parameter is taken as it is); live bytes counted by torch 2.13's
        profiler

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> lasting_gradient_bytes(sample_workload(), sample_degrees())
    0.0
    """
    if workload.stack.keeps_gradients:
        return 0.0
    lasting = 0.0 if workload.software.step_in_backward else workload.state.gradient_bytes
    return where(both(degrees.zero_stage == 0, degrees.accumulation == 1), lasting, 0.0)


def trained_numbers(ops: Ops, split: tuple[Amount, ...]) -> Amount:
    """Trained parameters of some operations on one rank.

    Formula: sum over trained weights of rows x columns x copies / divisor
    Args:
        split: divisor of each split [1]
    Returns: parameters [1]
    Source: definition: the ledger of operations, model/ledger.py

    >>> from service.estimator.samples import sample_workload
    >>> trained_numbers(sample_workload().ledger.head, (1,) * 9) == 128_256 * 4096 + 4096
    True
    """
    numbers: Amount = 0
    for op in ops:
        for weight in op.weights:
            if weight.trained:
                numbers = numbers + weight.parameters / split[weight.split]
    return numbers


def head_gradient_bytes(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes of the head's gradients that are there when the last layer runs backward.

    A head that is the embedding too has its gradient wait for the embedding's, in every micro-batch.

    Formula: parameters after the last layer x bytes that last
    Args:
        stage: the stage; 0 on every one but the last
    Returns: bytes of one rank [byte]
    Source: torch autograd (a gradient is handed on once all that it is a sum of is known)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> head_gradient_bytes(sample_workload(), sample_degrees(), stage)
    0.0
    """
    if workload.stack.keeps_gradients:
        return 0.0
    waits = both(degrees.accumulation == 1, not workload.software.step_in_backward)
    outlives = either(workload.model.tie_word_embeddings, waits)
    made = trained_numbers(workload.ledger.head, divisors(degrees, workload.model, workload.vocabulary_multiple))
    return where(
        both(both(stage.is_last, degrees.zero_stage == 0), outlives), made * workload.state.gradient_bytes, 0.0
    )


def _head_rows(workload: Workload, degrees: Degrees) -> Amount:
    """Numbers that one rank's head gives for each token: its part of the padded vocabulary, or one."""
    # Source: Megatron-LM vocab_size_with_padding; transformers modeling_layers.GenericForSequenceClassification
    if workload.model.scalar_head:
        return 1.0
    return padded_vocabulary(workload.model, workload.vocabulary_multiple, degrees.tensor) / degrees.tensor


def head_product_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the gradient of the head's matrix as its product makes it, on one rank of the last stage.

    Formula: V_padded / t x h elements; 0 with buffers for gradients, where the product adds to them
    Returns: bytes of one rank [byte]
    Source: torch autograd of torch.nn.functional.linear

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> head_product_bytes(sample_workload(), sample_degrees())
    0.0
    """
    weights = [weight for op in workload.ledger.head for weight in op.weights]
    if workload.stack.keeps_gradients or not any(weight.role == "head" and weight.trained for weight in weights):
        return 0.0
    rows = _head_rows(workload, degrees)
    return where(degrees.zero_stage == 0, rows * workload.model.embedding_width * workload.precision.element_bytes, 0.0)


@dataclass(slots=True)
class LayerBufferParts:
    """What the bytes beside kept activations are made of, while a layer runs backward."""

    end_bytes: Amount
    """The head's gradients that are there, less what the head kept and freed."""
    stream_bytes: Amount
    """The gradient of the stream."""
    worst_bytes: list[Amount]
    """Most of the rest over the operations of a layer of each kind."""


def layer_buffer_bytes(parts: LayerBufferParts, stage: Stage, *beside: Sequence[Amount]) -> Amount:
    """Bytes that the backward pass of one layer holds beside all kept activations, at its worst, on one rank.

    The layer's operations run backward one by one; each needs the gradient of the layer's result and tensors of its
    own, and the tensors that later operations had kept are free by then. Where gradients have no buffers, those of
    operations that have run backward are there too, and the head's; what the head kept is gone.

    Formula:
        max over operations j of (gradient of the stream + passing_j - sum over later operations of what they kept or
        computed again + gradients made so far)
    Args:
        beside:
            what a layer of each kind computes again, and where others' activations are away what it keeps, where the
            layer that needs most with it is meant [byte]
    Returns: bytes of the layer that needs most, beside the most that one computes again, or keeps [byte]
    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/module (order of the backward pass); the peak of a gated MLP, 4 s f / t
        beside the gradient, is that of published Megatron-Core runs (MooreThreads/SimuMax@4dcaae5)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> parts = layer_buffer_parts(sample_workload(), sample_degrees(), stage)
    >>> layer_buffer_bytes(parts, stage) == 2 * 8192 * (4096 + 2 * 14336)
    True
    """
    worst = [parts.stream_bytes + one for one in parts.worst_bytes]
    for live in beside:
        worst = [one + own for one, own in zip(worst, live, strict=True)]
    together = largest_kind_bytes(stage, worst)
    for live in beside:
        together = together - largest_kind_bytes(stage, list(live))
    return maximum(0.0, parts.end_bytes + together)


def layer_buffer_parts(workload: Workload, degrees: Degrees, stage: Stage) -> LayerBufferParts:
    """The bytes of `layer_buffer_bytes`, part by part."""
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    each_bytes = lasting_gradient_bytes(workload, degrees)
    return LayerBufferParts(
        end_bytes=head_gradient_bytes(workload, degrees, stage) - _left_by_head(workload, stage, split) * scale,
        stream_bytes=handed_stream_bytes(workload, degrees),
        worst_bytes=[_worst(ops, split, scale, each_bytes) for ops in workload.ledger.kinds],
    )


def _left_by_head(workload: Workload, stage: Stage, split: tuple[Amount, ...]) -> Amount:
    """Bytes of one sequence that the head kept and that are gone when the last layer runs backward."""
    if workload.stack.keeps_gradients:
        return 0.0
    return where(stage.is_last, kept_bytes(workload.ledger.head, workload.recompute, split), 0.0)


def _worst(ops: Ops, split: tuple[Amount, ...], scale: Amount, each_bytes: Amount) -> Amount:
    """Most bytes beside what is kept, over the operations from last to first, with gradients of so many bytes each."""
    most: Amount = 0.0
    freed: Amount = 0.0
    made: Amount = 0.0
    for op in reversed(ops):
        made = made + trained_numbers((op,), split) * each_bytes
        if op.transient and op.gradients:
            most = maximum(most, (_bytes(op.transient, split) - freed) * scale + made)
        freed = freed + kept_bytes((op,), KEEP_ALL, split)
    return most


WHOLE_LOSSES = ("eager", "compiled")
"""Losses that torchtitan replaces by a parallel one where tensor ranks split the vocabulary.
Source: pytorch/torchtitan@9dec370 config_manager.py (enable_loss_parallel)."""


@evaluated_once
def rank_logits(workload: Workload, degrees: Degrees) -> Amount:
    """Logits of one micro-batch on one rank of the last stage.

    Formula: b s / c  V_padded / t; b s / c with a scalar head
    Returns: logits [1]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.3

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> rank_logits(sample_workload(), sample_degrees()) == 8192 * 128_256
    True
    """
    return workload.recipe.sequence_length * degrees.micro_batch / degrees.context * _head_rows(workload, degrees)


@evaluated_once
def logits_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes that the logits of one micro-batch and their losses hold on one rank of the last stage, at their peak.

    That is inside the loss, or when the head runs backward: then the logits' gradient, and that of the stream before
    and after tensor ranks share it, and the gradient of the head's matrix where it has no buffer. A loop that holds the
    logits has them then too, and those of the micro-batch before until it has new ones. A head of 4 bits is
    dequantised for its products.

    Formula:
        max(logits x bytes a logit + piece,
        logits x (element / parts + held) + s b h / c (1 + 1 / t) elements + V h / t elements + D,
        where results are held: max(logits x (element + held), logits x element + D) + results held)
        + what each multi-token-prediction depth has kept of its own logits
    Args:
        workload: the workload; its cross entropy says the bytes a logit
    Returns: bytes of one micro-batch [byte]
    Source:
        software/stacks.json, the row of the cross entropy; NVIDIA/Megatron-LM@23e00ed0 core/tensor_parallel/layers.py
        (backward of the head); Lightning-AI/litgpt@3bd08dd5 litgpt/finetune/lora.py (logits stay bound)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> logits_bytes(sample_workload(), sample_degrees())
    6304038912.0
    """
    logits, element = rank_logits(workload, degrees), workload.precision.element_bytes
    stream = stream_bytes(workload, degrees)
    shared = where(both(degrees.sequence_parallel == 1, degrees.tensor > 1), stream / degrees.tensor, 0.0)
    each = logit_bytes(workload, degrees)
    held, whole = held_logit_bytes(workload), dequantized_head_bytes(workload, degrees)
    parts = workload.cross_entropy.parts(workload.model)
    backward = logits * (element / parts + held) + stream + shared + head_product_bytes(workload, degrees) + whole
    loss = maximum(logits * each + piece_bytes(workload, degrees), backward)
    if workload.software.logits_until == "next":
        made = maximum(logits * (element + held), logits * element + whole)
        loss = maximum(loss, made + held_result_bytes(workload, degrees))
    return loss + workload.ledger.depths * logits * workload.cross_entropy.kept_bytes


def piece_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the fp32 copies of logits that a loss makes of one piece of each sequence after another.

    Formula: copies x 4 b min(piece, s) / c  V_padded / t
    Returns: bytes of one piece [byte]
    Source: software/stacks.json, the row of the cross entropy

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> piece_bytes(sample_workload(), sample_degrees())
    0.0
    """
    row, tokens = workload.cross_entropy, workload.recipe.sequence_length
    if not row.piece_tokens:
        return 0.0
    return rank_logits(workload, degrees) * min(1.0, row.piece_tokens / tokens) * row.piece_copies * WIDE_BYTES


def held_logit_bytes(workload: Workload) -> int:
    """Bytes of one logit that the training loop holds while its micro-batch runs backward.

    Formula: 4, or those of an activation where the loss has no fp32 copy; 0 where it holds them through the loss alone
    Returns: bytes of one logit [byte]
    Source: Lightning-AI/litgpt@3bd08dd5 litgpt/finetune/lora.py; fabric/wrappers.py (outputs in fp32)

    >>> from service.estimator.samples import sample_workload
    >>> held_logit_bytes(sample_workload())
    0
    """
    if workload.software.logits_until == "loss":
        return 0
    return WIDE_BYTES if workload.cross_entropy.full_copies else workload.precision.element_bytes


def held_result_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes that the results of the micro-batch before hold: its logits, and inputs of matrices of 4 bits.

    Formula:
        logits x held + sum over layers of what matrices of 4 bits keep of their inputs, where they do so and nothing is
        computed again
    Returns: bytes of one micro-batch [byte]
    Source:
        bitsandbytes-foundation/bitsandbytes@0.42.0 autograd/_functions.py MatMul4Bit (ctx.tensors is no saved tensor,
        so it lives as long as the graph, which the logits hold)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> held_result_bytes(sample_workload(), sample_degrees())
    0.0
    """
    logits = rank_logits(workload, degrees) * held_logit_bytes(workload)
    keeps = keeps_quantized_inputs(workload.method, workload.software)
    if not keeps or workload.recompute.granularity != "none":
        return logits * 1.0
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    groups = workload.ledger.groups()
    return logits + summed(times * _bytes(_quantized_inputs(ops), split) * scale for times, ops in groups)


def _quantized_inputs(ops: Ops) -> list[Saved]:
    """Saved tensors that are inputs of frozen matrices."""
    plain = [op for op in ops if not any(weight.role == "adapter" for weight in op.weights)]
    return [saved for op in plain for saved in op.saved if saved.serves in ("own_weights", "next_weights")]


DEQUANTIZED_BYTES = 2
"""Bytes of one number of a dequantised matrix before it has the compute format.
Source: Lightning-AI/pytorch-lightning@2.2 fabric/plugins/precision/bitsandbytes.py (quantised from fp16)."""


def dequantized_head_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of the head's matrix while it is dequantised: in fp16, and in the compute format.

    Formula: V_padded / t x h (2 + element); 0 where the head is no matrix of 4 bits
    Returns: bytes of one rank [byte]
    Source: bitsandbytes-foundation/bitsandbytes@0.42.0 autograd/_functions.py MatMul4Bit; DEQUANTIZED_BYTES

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> dequantized_head_bytes(sample_workload(), sample_degrees())
    0.0
    """
    if not quantizes_head(workload):
        return 0.0
    rows = _head_rows(workload, degrees)
    return rows * workload.model.embedding_width * (DEQUANTIZED_BYTES + workload.precision.element_bytes)


def logit_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of one logit inside its loss.

    Formula: the row's of the cross entropy; the parallel loss's where torchtitan's tensor ranks split the vocabulary
    Returns: bytes of one logit [byte]
    Source: software/stacks.json, the row of the cross entropy; WHOLE_LOSSES

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> logit_bytes(sample_workload(), sample_degrees())
    6.0
    """
    element = workload.precision.element_bytes
    each: Amount = workload.cross_entropy.logit_bytes(element, workload.model)
    if workload.stack.splits_loss and workload.software.cross_entropy in WHOLE_LOSSES:
        each = where(degrees.tensor > 1, CROSS_ENTROPIES["loss-parallel"].logit_bytes(element, workload.model), each)
    return each


@evaluated_once
def kept_logits_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes that the losses of one micro-batch keep until it runs backward, on one rank of the last stage.

    Formula: losses x logits x bytes that stay of each
    Args:
        workload: the workload; its cross entropy says the bytes
    Returns: bytes of one micro-batch [byte]
    Source: software/stacks.json, the row of the cross entropy

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> kept_logits_bytes(sample_workload(), sample_degrees()) == 4 * 8192 * 128_256
    True
    """
    return (1 + workload.ledger.depths) * rank_logits(workload, degrees) * workload.cross_entropy.kept_bytes


CACHED_SINCE = "2.3"
GROUPED_CACHED_SINCE = "2.10"
"""Transformer Engine keeps the empty gradients of its linear layers, and of grouped ones, from these versions on.
Source: NVIDIA/TransformerEngine@ba5dc5dd and @d2945c6a."""

HEAD_CACHED_SINCE = "0.14"
"""Megatron-Core keeps that of the head from this version on. Source: NVIDIA/Megatron-LM@e7c55de9."""

GRADIENT_BYTES = 2.0
"""Bytes of one number of an empty gradient: the weights' 16-bit format, for fp8 weights too.
Source: NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_dummy_wgrad."""


def placeholder_bytes(workload: Workload, degrees: Degrees, stage: Stage) -> Amount:
    """Bytes of the empty gradients that one rank of a stage keeps once its first backward pass has run.

    Products of weight gradients add to the accumulated gradients themselves; what autograd is handed instead is an
    empty tensor of the weight's shape, one for all weights of that shape.

    Formula: 2 x sum over distinct shapes of matrices, of one expert where they are grouped, and of the head
    Returns: bytes of one rank [byte]
    Source:
        NVIDIA/TransformerEngine@v2.11 pytorch/module/base.py get_dummy_wgrad; NVIDIA/Megatron-LM@e7c55de9
        core/tensor_parallel/layers.py

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> placeholder_bytes(sample_workload(), sample_degrees(), stage) == 2 * (218_103_808 + 128_256 * 4096)
    True
    """
    return sum(placeholder_shapes(workload, degrees, stage).values(), 0.0)


def placeholder_shapes(workload: Workload, degrees: Degrees, stage: Stage) -> dict[tuple[int, int], Amount]:
    """Bytes of the empty gradient of each distinct shape that one rank of a stage keeps."""
    if not workload.software.gradient_fusion or not workload.implementation.uses_transformer_engine:
        return {}
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    cached = _cached(workload)
    shapes: dict[tuple[int, int], Amount] = {}
    groups: list[tuple[Condition, Ops]] = [
        (stage.is_last, workload.ledger.head),
        (stage.depths > 0, workload.ledger.depth),
    ]
    groups += [(count > 0, ops) for count, ops in zip(stage.kind_counts, workload.ledger.kinds, strict=True)]
    for is_held, ops in groups:
        for op in ops:
            shape, numbers = _matrix(op, cached, degrees, split)
            if shape is not None:
                each = where(is_held, GRADIENT_BYTES * numbers, 0.0)
                shapes[shape] = maximum(shapes.get(shape, 0.0), each)
    return shapes


def _cached(workload: Workload) -> set[tuple[WeightRole, bool]]:
    """Roles of weights that have an empty gradient, with whether they are of experts."""
    engine, core = workload.versions.transformer_engine, workload.versions.megatron_core
    if not at_least(engine, CACHED_SINCE):
        return set()
    cached: set[tuple[WeightRole, bool]] = {("matrix", False)}
    if at_least(core, HEAD_CACHED_SINCE):
        cached.add(("head", False))
    if not workload.software.grouped_experts or at_least(engine, GROUPED_CACHED_SINCE):
        cached.add(("matrix", True))
    return cached


def _matrix(
    op: Op, cached: set[tuple[WeightRole, bool]], degrees: Degrees, split: tuple[Amount, ...]
) -> tuple[tuple[int, int] | None, Amount]:
    """The undivided shape of the one matrix that an operation's weights form side by side, and a rank's part of it."""
    results = [
        weight for weight in op.weights if weight.trained and (weight.role, weight.split is Split.EXPERT) in cached
    ]
    if not results or op.name == "moe.router":
        return None, 0.0
    numbers: Amount = 0.0
    for weight in results:
        experts = degrees.expert if weight.split is Split.EXPERT else 1  # of those, one is meant
        numbers = numbers + weight.rows * weight.columns / (split[weight.split] / experts)
    return (results[0].rows, sum(weight.columns for weight in results)), numbers


@dataclass(slots=True, kw_only=True)
class RankLoad:
    """The load of one rank of one stage; equal stages have equal loads."""

    parameters: RankParameters
    """Parameters of its weights, and of the gradients of the trained ones."""
    updated: RankParameters
    copies: RankParameters
    """Those of its parameters that are second copies of another stage's."""
    kept_bytes: tuple[Amount, ...]
    """Activations that one micro-batch keeps in each chunk."""
    largest_kept_bytes: Amount
    """Activations that its largest layer keeps of one micro-batch."""
    largest_whole_bytes: Amount
    """Activations that its largest layer would keep without recompute."""
    recomputed_bytes: Amount
    """Activations that live once while layers are computed again."""
    layer_buffer_bytes: Amount
    """What lives once while a layer runs backward."""
    resident_buffer_bytes: Amount
    """The same beside what its largest layer keeps, where other layers' activations are away."""
    placeholder_bytes: Amount
    """Empty gradients that the libraries keep."""
    largest_layer: Amount
    largest_trained_layer: Amount
    """Most trained parameters of a layer."""
    gathered_ends: Amount
    """Parameters of what is gathered with the head: the head, and where the stack's root holds both the embedding."""
    largest_trained_end: Amount
    """Most trained parameters of either."""
    layers: Amount
    largest_activation_bytes: Amount
    """The largest result of a matrix product of one micro-batch."""
    cast_numbers: Amount
    """Trained weights that autocast casts on the fly."""
    late_cast_numbers: Amount
    """Those of them that are cast while the last layer runs backward."""
    activation_layers: Amount
    """Layers that keep one as large for the backward pass; 0 where recompute may drop it."""
    again_layers: Amount
    """Layers of a group computed again that make one as large, beyond those that kept one and have run backward."""
    embedding_table: Amount
    """Trained parameters of its embedding's matrix; 0 where it has none."""
    largest_table: Amount
    """Trained parameters of its embedding's or its head's matrix, whichever is larger; 0 where it has neither."""
    logits_bytes: Amount
    """Logits and losses of one micro-batch; 0 where it has no head."""
    kept_logits_bytes: Amount
    """What the loss of one micro-batch keeps for its backward pass."""


def rank_load_of(workload: Workload, degrees: Degrees, stage: Stage) -> RankLoad:
    """The load of one rank of one stage."""
    parameters = rank_parameters(workload, degrees, stage)
    activations = stage_activations(workload, degrees, stage)
    buffers = layer_buffer_parts(workload, degrees, stage)
    ends = end_activation_bytes(workload, degrees, stage)
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    layers = [(count > 0, ops) for count, ops in zip(stage.kind_counts, workload.ledger.kinds, strict=True)]
    layer, trained_layer = _largest(layers, split)
    largest_tensor, largest_tensors, largest_again = _largest_tensor(workload, stage, split)
    both_ends = [(stage.is_first, workload.ledger.embedding), (stage.is_last, workload.ledger.head)]
    end, trained_end = _largest(both_ends, split)
    cast, late_cast = cast_numbers(workload, degrees, stage)
    return RankLoad(
        parameters=parameters,
        updated=parameters,
        copies=rank_parameters(workload, degrees, stage, copies_alone=True),
        kept_bytes=tuple(own + end for own, end in zip(activations.kept_bytes, ends, strict=True)),
        largest_kept_bytes=activations.largest_bytes,
        largest_whole_bytes=activations.largest_whole_bytes,
        recomputed_bytes=largest_kind_bytes(stage, list(activations.again_bytes)),
        layer_buffer_bytes=layer_buffer_bytes(buffers, stage, activations.again_bytes),
        resident_buffer_bytes=layer_buffer_bytes(buffers, stage, activations.again_bytes, activations.layer_bytes),
        placeholder_bytes=placeholder_bytes(workload, degrees, stage),
        largest_layer=layer,
        largest_trained_layer=trained_layer,
        gathered_ends=_gathered_ends(workload, degrees, stage, split, end),
        largest_trained_end=trained_end,
        layers=stage.layers,
        largest_activation_bytes=largest_tensor * degrees.micro_batch / degrees.context,
        activation_layers=largest_tensors,
        again_layers=largest_again,
        cast_numbers=cast,
        late_cast_numbers=late_cast,
        embedding_table=_largest_table(both_ends[:1], split),
        largest_table=_largest_table(both_ends, split),
        logits_bytes=where(stage.is_last, logits_bytes(workload, degrees), 0.0),
        kept_logits_bytes=where(stage.is_last, kept_logits_bytes(workload, degrees), 0.0),
    )


def cast_numbers(workload: Workload, degrees: Degrees, stage: Stage) -> tuple[Amount, Amount]:
    """Trained weights that autocast casts on the fly: in the forward pass, and at the start of the backward pass.

    Layers that run again cast their weights again, and drop what they cast before.

    Formula:
        trained weights of products; backward: those of the head, of layers that keep their activations, and of one
        group of layers that run again, no more than all
    Returns: parameters of one rank [1]
    Source:
        torch.amp (a cast of a parameter is kept until autocast ends, and by what saved it); norms and embeddings are
        not cast, nor are experts where they compute in fp32; counted by torch 2.13

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> cast_numbers(sample_workload(), sample_degrees(), stage)
    (0.0, 0.0)
    """
    if not workload.state.casts_weights:
        return 0.0, 0.0
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    layers = [_cast_of(workload, ops, split) for ops in workload.ledger.kinds]
    ends = where(stage.is_first, _cast_of(workload, workload.ledger.embedding, split), 0.0)
    ends = ends + where(stage.is_last, _cast_of(workload, workload.ledger.head, split), 0.0)
    ends = ends + stage.depths * _cast_of(workload, workload.ledger.depth, split)
    all_layers, trained = _weighted(stage.kind_counts, layers), trained_layers(workload, stage.kind_counts)
    again = recomputed_layers(workload.recompute, trained, degrees.virtual_pipeline)
    group = 1 if workload.recompute.method == "block" else workload.recompute.layers or 1
    live = minimum(minimum(group, again), stage.layers) * largest_kind_bytes(stage, layers)
    late = minimum(all_layers * (1 - again / maximum(trained, 1)) + live, all_layers)
    return ends + all_layers, ends + late


def _cast_of(workload: Workload, ops: Ops, split: tuple[Amount, ...]) -> Amount:
    """Trained weights of some operations that autocast casts."""
    left: tuple[WeightRole, ...] = ("norm", "embedding")
    leaves_experts = workload.implementation.runs_transformers
    adapts = workload.method.name != "full"  # parts trained whole beside adapters are in the compute format already
    numbers: Amount = 0.0
    for weight in (weight for op in ops for weight in op.weights if weight.trained):
        is_cast = weight.role == "adapter" if adapts else weight.role not in left
        if is_cast and not (leaves_experts and weight.split is Split.EXPERT):
            numbers = numbers + weight.parameters / split[weight.split]
    return numbers


def _largest_tensor(workload: Workload, stage: Stage, split: tuple[Amount, ...]) -> tuple[Amount, Amount, Amount]:
    """Bytes of one sequence of the largest result of a product in any layer; layers that keep it, and make it again."""
    kinds, each_bytes = workload.ledger.kinds, workload.recipe.sequence_length * workload.precision.element_bytes
    by_kind = [_widest(ops, split) for ops in kinds]
    most = largest_kind_bytes(stage, by_kind)
    large = [where(one == most, count, 0) for count, one in zip(stage.kind_counts, by_kind, strict=True)]
    return most * each_bytes, *_kept_and_again(workload, stage, split, large)


def _widest(ops: Ops, split: tuple[Amount, ...], dropped: frozenset[str] = frozenset()) -> Amount:
    """Most columns of a product's result on one rank, of operations that recompute of some modules does not run again.

    The result of a matrix that every rank holds is split as the tokens that it reads.
    """
    widest: Amount = 0.0
    for op in ops:
        for weight in op.weights if dropped.isdisjoint(op.modules) else ():
            divisor = split[op.split if weight.split is Split.WHOLE else weight.split]
            widest = maximum(widest, weight.columns / divisor if weight.matrices else 0.0)
    return widest


def _kept_and_again(
    workload: Workload, stage: Stage, split: tuple[Amount, ...], large: list[Amount]
) -> tuple[Amount, Amount]:
    """Layers of those that keep their largest product; those of one recompute that make it again, beyond the kept.

    None is made again where layers of another kind may be those that need most for it.
    """
    rule, kinds = workload.recompute, workload.ledger.kinds
    if rule.granularity == "full":
        layers = trained_layers(workload, stage.kind_counts)
        share = repeated_forwards(rule, layers, len(stage.chunk_counts))
        again, group = [share * count for count in large], 1 if rule.method == "block" else rule.layers or 1
        freed, others = (1 - share) * summed(large), summed(stage.kind_counts) - summed(large)
    else:
        dropped = frozenset(rule.modules)
        again = [
            where(_widest(ops, split, dropped) < _widest(ops, split), count, 0)
            for count, ops in zip(large, kinds, strict=True)
        ]
        drops = [any(not dropped.isdisjoint(saved.modules) for op in ops for saved in op.saved) for ops in kinds]
        group, freed = 1, 0
        others = summed(count * drop for count, drop in zip(stage.kind_counts, drops, strict=True)) - summed(again)
    together = maximum(minimum(group, summed(again)) - freed, 0)
    return summed(large) - summed(again), where(others == 0, together, 0)


def _largest_table(groups: Sequence[tuple[Condition, Ops]], split: tuple[Amount, ...]) -> Amount:
    largest: Amount = 0.0
    for is_held, ops in groups:
        for weight in (weight for op in ops for weight in op.weights if weight.trained and weight.rows > 1):
            largest = maximum(largest, where(is_held, weight.parameters / split[weight.split], 0.0))
    return largest


def _gathered_ends(
    workload: Workload, degrees: Degrees, stage: Stage, split: tuple[Amount, ...], largest: Amount
) -> Amount:
    """Embedding and head, a tied one once, where the root of the model is one group; else the larger of them."""
    if gathers_ends_apart(workload):
        return largest
    return summed(
        where(has_it, weight.parameters * copies_on_rank(weight, degrees) / split[weight.split], 0.0)
        for has_it, ops in ((stage.is_first, workload.ledger.embedding), (stage.is_last, workload.ledger.head))
        for op in ops
        for weight in op.weights
    )


def _largest(groups: Sequence[tuple[Condition, Ops]], split: tuple[Amount, ...]) -> tuple[Amount, Amount]:
    """Most parameters, and most trained ones, of a group of operations, among the groups that the stage has."""
    return (
        reduce(maximum, [where(has_it, _parameters(ops, split), 0.0) for has_it, ops in groups]),
        reduce(maximum, [where(has_it, trained_numbers(ops, split), 0.0) for has_it, ops in groups]),
    )


def _parameters(ops: Ops, split: tuple[Amount, ...]) -> Amount:
    return summed(weight.parameters / split[weight.split] for op in ops for weight in op.weights)


def mirrored(one: RankLoad, other: RankLoad, degrees: Degrees) -> RankLoad:
    """The load of a DualPipe rank, which serves a stage from either end of the pipeline.

    It holds both stages' weights and gradients, those that they share once; each stage's optimizer is shared by its two
    holders; half of its micro-batches come from either end.

    Without ZeRO both holders keep the whole optimizer.

    Source:
        DeepSeek-V3, arXiv:2412.19437, sections 3.2.1 and 3.2.3 (shared embedding and head) and table 2
    """
    joined = {"parameters", "updated", "copies", "kept_bytes", "layers"}
    copies = one.copies.plus(other.copies)
    others = [field.name for field in fields(RankLoad) if field.name not in joined]
    return RankLoad(
        parameters=one.parameters.plus(other.parameters).less(copies),
        updated=one.updated.plus(other.updated).less(copies).over(where(degrees.zero_stage >= OPTIMIZER_STATES, 2, 1)),
        copies=copies,
        kept_bytes=tuple((near + far) / 2 for near, far in zip(one.kept_bytes, other.kept_bytes, strict=True)),
        layers=one.layers + other.layers,
        **{name: maximum(getattr(one, name), getattr(other, name)) for name in others},
    )


def end_activation_bytes(workload: Workload, degrees: Degrees, stage: Stage) -> tuple[Amount, ...]:
    """Bytes that embedding, head and depths keep of one micro-batch on one rank of a stage, their layers apart.

    Formula:
        sum of what their operations keep: the embedding's in the first chunk of the first stage, the others' in the
        last chunk of the last
    Returns: bytes of one micro-batch in each chunk [byte]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.3

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> stage = Stage(index=0, chunk_counts=((32,),), depths=0, is_first=True, is_last=True)
    >>> end_activation_bytes(sample_workload(), sample_degrees(), stage) == (2 * (2 * 8192 * 4096),)
    True
    """
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    scale = degrees.micro_batch / degrees.context
    first = where(stage.is_first, kept_bytes(workload.ledger.embedding, workload.recompute, split), 0.0)
    head = where(stage.is_last, kept_bytes(workload.ledger.head, workload.recompute, split), 0.0)
    last = head + stage.depths * kept_bytes(workload.ledger.depth, workload.recompute, split)
    chunks = range(len(stage.chunk_counts))
    if stage.is_last is False:
        return tuple(0.0 if chunk else first * scale for chunk in chunks)
    ends = [where(degrees.virtual_pipeline == chunk + 1, last, 0.0) for chunk in chunks]
    return tuple((end + (0.0 if chunk else first)) * scale for chunk, end in enumerate(ends))
