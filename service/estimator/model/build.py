"""Table of mixers, and the ledger of a model under a training method.

The backward pass of a product costs one further product for each needed gradient: that of trained weights, and that of
an input that follows a trained part. Activations that no gradient needs are not saved.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from service.estimator.model.layers.attention import attention_ops
from service.estimator.model.layers.ends import depth_embedding_ops, depth_ops, embedding_ops, head_ops
from service.estimator.model.layers.experts import expert_ops
from service.estimator.model.layers.linear_attention import gated_delta_net_ops, lightning_attention_ops
from service.estimator.model.layers.linear_recurrence import linear_recurrence_ops
from service.estimator.model.layers.shared_transformer import SHARED, shared_transformer_ops
from service.estimator.model.layers.short_convolution import short_convolution_ops
from service.estimator.model.layers.state_space import mamba2_ops, mamba_ops
from service.estimator.model.ledger import (
    EVERYTHING,
    GROUP,
    LAST_NORM,
    Backward,
    LayerShape,
    Ledger,
    Op,
    Ops,
    Saved,
    SequenceSettings,
    Split,
    Weight,
)
from service.estimator.model.operations import feed_forward_ops, is_unfused, norm_op, residual_op
from service.estimator.question import LayerType, MatrixName, Method, MlpType, Model, PartName, Recipe

LayerOps = Callable[[Model, LayerType, SequenceSettings], Ops]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """A kind of layer that mixes tokens."""

    ops: tuple[LayerOps, ...] = ()
    """Functions that build its operations; several run side by side on the same input."""
    attends: bool = False
    """Whether it has attention, whose work grows with the square of the sequence."""
    carries_state: bool = False
    """Whether a state or a window passes along the sequence from token to token."""
    shares_block: bool = False
    """Whether its layers share the weights of a block."""
    branches: int = 1
    """Branches whose results the tensor-parallel ranks sum."""
    required_fields: tuple[str, ...] = ()
    optional_fields: tuple[str, ...] = ()
    tensor_split_fields: tuple[str, ...] = ()
    """Fields of Model that the tensor degree must divide, in addition to those of attention."""


_HEAD_FIELDS = ("num_key_value_heads", "head_dim", "attention_bias", "attention_out_bias")
_ATTENTION = Mixer(
    ops=(attention_ops,),
    attends=True,
    required_fields=("num_attention_heads",),
    optional_fields=(*_HEAD_FIELDS, "qk_norm", "attention_gate", "attention_sinks"),
)
_STATE_FIELDS = ("mamba_d_ssm", "mamba_d_state", "conv_kernel")
_PROJECTION_FIELDS = ("conv_bias", "mixer_bias")
_MAMBA2 = Mixer(
    ops=(mamba2_ops,),
    carries_state=True,
    required_fields=(*_STATE_FIELDS, "mamba_n_heads", "mamba_n_groups"),
    optional_fields=(*_PROJECTION_FIELDS, "mixer_norm"),
    tensor_split_fields=("mamba_n_heads", "mamba_n_groups"),
)

MIXERS: Mapping[LayerType, Mixer] = {
    "full_attention": _ATTENTION,
    "sliding_attention": _ATTENTION,
    "chunked_attention": _ATTENTION,
    "lightning_attention": Mixer(
        ops=(lightning_attention_ops,), carries_state=True,
        required_fields=("num_attention_heads",), optional_fields=("head_dim", "mixer_bias"),
    ),
    "gated_delta_net": Mixer(
        ops=(gated_delta_net_ops,),
        carries_state=True,
        required_fields=(
            "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
            "conv_kernel",
        ),
        optional_fields=_PROJECTION_FIELDS,
        tensor_split_fields=("linear_num_key_heads", "linear_num_value_heads"),
    ),
    "mamba": Mixer(
        ops=(mamba_ops,),
        carries_state=True,
        required_fields=(*_STATE_FIELDS, "mamba_dt_rank"),
        optional_fields=(*_PROJECTION_FIELDS, "mixer_norm"),
        tensor_split_fields=("mamba_d_ssm",),
    ),
    "mamba2": _MAMBA2,
    "attention_and_mamba2": Mixer(
        ops=(attention_ops, mamba2_ops), attends=True, carries_state=True,
        required_fields=(*_ATTENTION.required_fields, *_MAMBA2.required_fields),
        optional_fields=(*_ATTENTION.optional_fields, *_MAMBA2.optional_fields),
        tensor_split_fields=_MAMBA2.tensor_split_fields,
    ),
    "shared_attention_and_mamba2": Mixer(
        ops=(shared_transformer_ops, mamba2_ops), attends=True, carries_state=True, shares_block=True, branches=4,
        required_fields=("num_attention_heads", *_MAMBA2.required_fields, "num_mem_blocks", "intermediate_size"),
        optional_fields=(
            *_HEAD_FIELDS, "mlp_bias", "gated_mlp", *_MAMBA2.optional_fields, "adapter_rank",
            "shared_attention_adapter",
        ),
        tensor_split_fields=_MAMBA2.tensor_split_fields,
    ),
    "rg_lru": Mixer(
        ops=(linear_recurrence_ops,),
        carries_state=True,
        required_fields=("lru_width", "num_attention_heads", "conv_kernel"),
        optional_fields=_PROJECTION_FIELDS,
        tensor_split_fields=("num_attention_heads",),
    ),
    "short_convolution": Mixer(
        ops=(short_convolution_ops,),
        carries_state=True,
        required_fields=("conv_kernel",),
        optional_fields=_PROJECTION_FIELDS,
        tensor_split_fields=("hidden_size",),
    ),
    "none": Mixer(branches=0),
}  # fmt: skip

MLP_FIELDS = ("intermediate_size", "gated_mlp", "mlp_bias", "activation_parameters")
"""Fields of Model that describe an MLP. A shared block has its own MLP."""

MIXER_FIELDS = tuple(
    dict.fromkeys(
        name
        for mixer in MIXERS.values()
        for name in (*mixer.required_fields, *mixer.optional_fields)
        if name not in MLP_FIELDS
    )
)
"""Fields of Model that only mixers read."""


MOST_CACHED_LEDGERS = 256
"""Most ledgers in a cache: requests name few models, and many layouts of each. Source: a choice."""


def layer_type(model: Model, layer: int) -> LayerType:
    """Layer type of one layer: from the model's repeating pattern, else sliding if it has a window, else full."""
    if model.layer_types:
        return model.layer_types[layer % len(model.layer_types)]
    return "full_attention" if model.sliding_window is None else "sliding_attention"


def mlp_type(model: Model, layer: int) -> MlpType:
    """MLP of one layer: dense for the leading layers, then the model's pattern, else sparse if it has experts."""
    if layer < model.first_k_dense_replace:
        return "dense"
    if model.mlp_layer_types:
        return model.mlp_layer_types[layer % len(model.mlp_layer_types)]
    return "sparse" if model.num_experts else "dense"


def layer_ops(model: Model, shape: LayerShape, setting: SequenceSettings) -> Ops:
    """Operations of one whole layer."""
    mixer = tuple(op for ops in MIXERS[shape.mixer].ops for op in ops(model, shape.mixer, setting))
    mixed = _with_tied_block(mixer) if shape.is_reuse else mixer
    dense = feed_forward_ops(model, setting, width=model.intermediate_size or 0) if "dense" in shape.mlp else ()
    channels = (*dense, *(expert_ops(model, setting) if shape.is_sparse else ()))
    is_joint = setting.runs_transformers and model.is_gpt2
    # Norms apart: before latent attention and experts. Source: NVIDIA/Megatron-LM@d98e8a64 core/models/gpt/
    # gpt_layer_specs.py, hybrid/hybrid_layer_specs.py (TENorm; else TELayerNormColumnParallelLinear)
    readers, is_latent = 1 if is_joint else _readers(mixed), model.kv_lora_rank is not None
    attention_norm = norm_op("attention.norm", model, setting, readers=readers, is_apart=is_latent)
    reads = (GROUP,) if model.parallel_attention else ()
    readers = _readers(channels)
    mlp_norm = norm_op("mlp.norm", model, setting, readers=readers, reads=reads, is_apart=shape.is_sparse)
    if model.parallel_attention and mixed and not is_unfused(model, setting):
        mlp_norm = replace(mlp_norm, saved=mlp_norm.saved[1:])  # the first norm saves their input
    has_own_norm = model.norms_per_layer > 1 or not mixed
    ops = (
        *_branch("attention", (attention_norm, *mixed) if mixed else (), model, setting),
        *_branch("mlp", (mlp_norm, *channels) if channels and has_own_norm else channels, model, setting),
    )
    if setting.stops_early and len(ops) > 1 and ops[-2].name == "mlp.down":
        ops = (*ops[:-2], replace(ops[-2], skips_rerun=True), ops[-1])
    return _with_matrix_counts(ops) if setting.counts_products else ops


def _with_matrix_counts(ops: Ops) -> Ops:
    """The operations, each with the number of matrices before it in its layer."""
    counted: list[Op] = []
    before = 0
    for op in ops:
        counted.append(replace(op, products_before=before) if before else op)
        before += sum(len(weight.matrices) for weight in op.weights)
    return tuple(counted)


def _readers(ops: Ops) -> int:
    """Matrices of a branch that read the norm before it: those of its first product, and of others that say so."""
    products = [op for op in ops if op.weights and op.kind == "gemm"]
    readers = [op for place, op in enumerate(products) if place == 0 or LAST_NORM in op.reads]
    return max(1, sum(max(1, sum(len(weight.matrices) for weight in op.weights)) for op in readers))


def _branch(name: str, ops: Ops, model: Model, setting: SequenceSettings) -> Ops:
    """One branch of a layer with its residual addition; empty if the layer lacks the branch."""
    if not ops:
        return ()
    has_norm = model.norms_per_layer == 4
    after = (norm_op(f"{name}.post_norm", model, setting, readers=0),) if has_norm else ()
    return (*ops, *after, residual_op(f"{name}.residual", model, setting))


def _with_tied_block(ops: Ops) -> Ops:
    """Operations of a layer that reuses the block of an earlier layer, whose weights are tied."""
    return tuple(
        replace(op, weights=tuple(replace(weight, tied=True) for weight in op.weights))
        if op.name.startswith(SHARED)
        else op
        for op in ops
    )


def layer_shapes(model: Model) -> list[LayerShape]:
    """The shape of every layer, first to last."""
    shapes: list[LayerShape] = []
    blocks = 0
    for layer in range(model.num_hidden_layers):
        mixer = layer_type(model, layer)
        shares = MIXERS[mixer].shares_block
        shapes.append(LayerShape(mixer, mlp_type(model, layer), shares and blocks >= model.num_mem_blocks))
        blocks += shares
    return shapes


@lru_cache(maxsize=MOST_CACHED_LEDGERS)
def build_ledger(model: Model, setting: SequenceSettings) -> Ledger:
    """Build the ledger of a model: the operations of each distinct kind of layer, once."""
    shapes = layer_shapes(model)
    kind_of = {shape: kind for kind, shape in enumerate(dict.fromkeys(shapes))}
    has_depths = model.num_nextn_predict_layers > 0
    return Ledger(
        embedding=embedding_ops(model, setting),
        kinds=tuple(layer_ops(model, shape, setting) for shape in kind_of),
        shapes=tuple(kind_of),
        layer_kinds=tuple(kind_of[shape] for shape in shapes),
        depths=model.num_nextn_predict_layers,
        depth=depth_ops(model, setting) if has_depths else (),
        depth_kind=kind_of[shapes[-1]],
        head=(*head_ops(model, setting), *(depth_embedding_ops(model) if has_depths else ())),
    )


def mixers_of(model: Model) -> tuple[LayerType, ...]:
    """Distinct mixers of the layers of a model."""
    return tuple(dict.fromkeys(model.layer_types[: model.num_hidden_layers])) or (layer_type(model, 0),)


def recurrences_of(model: Model) -> tuple[LayerType, ...]:
    """Distinct mixers of a model that carry a state along the sequence."""
    return tuple(mixer for mixer in mixers_of(model) if MIXERS[mixer].carries_state)


DEFAULT_RANK = 8
"""Default rank of an adapter. Source: huggingface/peft LoraConfig (r = 8)."""

DEFAULT_TARGETS: tuple[MatrixName, ...] = ("q_proj", "v_proj")
"""Default targets of adapters.
Source: Hu et al. 2021, arXiv:2106.09685, section 7.1; huggingface/peft default targets of Llama."""

INNER_HALF = ".lora_a"
"""End of the name of an adapter's first product, which reads what the matrix reads."""

_ROW_PARALLEL: tuple[MatrixName, ...] = ("o_proj", "down_proj", "x_proj", "out_proj")
"""Row-parallel matrices, whose inputs tensor ranks split. All others are column-parallel."""


def adapter_ops(op: Op, weight: Weight, matrix: MatrixName, rank: int, setting: SequenceSettings) -> Ops:
    """The adapter of one matrix of a weight, as two products.

    An adapter has the input of its matrix, and its output is added to that of the matrix. Tensor ranks split it on the
    same side as its matrix, replicate the other side, and exchange the narrow side: r numbers for each token.
    """
    # Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; tensor ranks: huggingface/peft tuners/lora/tp_layer.py
    columns, copies = weight.columns // len(weight.matrices), weight.copies
    products = [each for each in op.weights if each.matrices] or [weight]
    tokens = op.flop // sum(2 * each.rows * each.columns for each in products)
    column_bytes = setting.element_bytes * tokens
    narrow_side = Split.EXPERT_TOKENS if weight.split is Split.EXPERT else Split.WHOLE
    first, second = (weight.split, op.split), (Split.WHOLE, Split.WHOLE)  # of the weights and of the work
    if weight.split in (Split.WHOLE, Split.EXPERT):
        second = first
    elif matrix not in _ROW_PARALLEL:
        first, second = second, first
    half = partial(Op, kind="gemm", whole_bytes=column_bytes * rank, modules=op.modules, keeps_precision=True)
    # peft brings the input to the fp32 of the adapter, and autocast that to its own format again: a copy of its own.
    # Source: huggingface/peft 0.21 tuners/lora/layer.py (_cast_input_dtype); not tuners/lora/bnb.py
    input_split = Split.TENSOR if matrix in _ROW_PARALLEL else Split.SEQUENCE
    cast = (Saved(column_bytes * weight.rows, input_split, op.modules, "own_weights"),)
    dropped = (*cast, Saved(tokens * weight.rows, input_split, op.modules, "input"))
    own = dropped if setting.drops_adapter_inputs else cast if setting.casts_adapter_inputs else ()
    return (
        half(
            name=f"{op.name}.{matrix}{INNER_HALF}",
            split=first[1],
            weights=(Weight(weight.rows, rank, first[0], copies, "adapter"),),
            flop=2 * tokens * weight.rows * rank,
            saved=own,
            moved_bytes=column_bytes * weight.rows,
        ),
        half(
            name=f"{op.name}.{matrix}.lora_b",
            split=second[1],
            weights=(Weight(rank, columns, second[0], copies, "adapter"),),
            flop=2 * tokens * rank * columns,
            saved=(Saved(column_bytes * rank, narrow_side, op.modules, "own_weights"),),
            moved_bytes=2 * column_bytes * columns,
        ),
    )


def _joined(adapters: Ops, *, is_partial: bool) -> Ops:
    """Adapters of one joint result: they share an input, and save what they add where that is a part of its columns."""
    # Source: Lightning-AI/litgpt@3bd08dd5 litgpt/lora.py LoRAQKVLinear; torch derivatives.yaml, index_copy
    joined: list[Op] = []
    for half in adapters:
        is_outer = not half.name.endswith(INNER_HALF)
        saved = half.saved if is_outer or not joined else ()
        if is_outer and is_partial:
            saved = (*saved, Saved(half.moved_bytes // 2, half.split, half.modules, "own_weights"))
        joined.append(replace(half, saved=saved))
    return tuple(joined)


_BEFORE = "before"
_ROLES: dict[str, PartName] = {"norm": "norms", "embedding": "embedding", "head": "head"}
_PART_OF_PREFIX: dict[str, PartName | None] = {
    "embedding": "embedding",
    "mlp": "mlp",
    "moe": "experts",
    "shared": "experts",
    "head": "head",
    "mtp": None,
}
"""Part of the model by the first word of an operation's name; all other words belong to mixers, part `attention`."""


def method_of(recipe: Recipe) -> Method:
    """The training method of a recipe in full, with the rank and targets of LoRA."""
    method = recipe.method if isinstance(recipe.method, Method) else Method(name=recipe.method)
    if method.name == "full":
        return method
    return replace(method, rank=method.rank or DEFAULT_RANK, targets=method.targets or DEFAULT_TARGETS)


def trains_everything(method: Method) -> bool:
    """Whether every parameter of the model is trained."""
    return method.name == "full" and not method.frozen and not method.frozen_layers


def part_of(op: Op, weight: Weight) -> PartName | None:
    """The part of the model that a weight belongs to; None for weights of multi-token-prediction depths."""
    if weight.role in _ROLES:
        return _ROLES[weight.role]
    if op.name == "moe.router":
        return "router"
    return _PART_OF_PREFIX.get(op.name.removeprefix(SHARED).partition(".")[0], "attention")


@lru_cache(maxsize=MOST_CACHED_LEDGERS)
def ledger_of(model: Model, setting: SequenceSettings, method: Method) -> Ledger:
    """The ledger of a model under a training method, cached for all layouts."""
    return trained_ledger(build_ledger(model, setting), method, setting)


def trained_ledger(ledger: Ledger, method: Method, setting: SequenceSettings) -> Ledger:
    """The ledger with frozen weights marked, adapters added, and only the needed gradients in backward passes."""
    # Layers that differ in the trained parts in or before them become distinct kinds.
    # Source: Hu et al. 2021, arXiv:2106.09685, section 4.1; torch.autograd (requires_grad)
    if trains_everything(method):
        return ledger
    traversal = _Traversal(ledger, method, setting)
    embedding, stream = traversal.group(ledger.embedding, input_needed=False)
    layer_kinds = []
    for layer, kind in enumerate(ledger.layer_kinds):
        result, stream = traversal.kind(kind, is_frozen=layer < method.frozen_layers, input_needed=stream)
        layer_kinds.append(result)
    depth_kind = traversal.kind(ledger.depth_kind, is_frozen=False, input_needed=stream)[0] if ledger.depths else 0
    return replace(
        ledger,
        embedding=embedding,
        kinds=tuple(traversal.kinds),
        shapes=tuple(ledger.shapes[kind] for kind, _, _ in traversal.result_of),
        layer_kinds=tuple(layer_kinds),
        depth=traversal.group(ledger.depth, input_needed=stream)[0],
        depth_kind=depth_kind,
        head=traversal.group(ledger.head, input_needed=stream)[0],
    )


@dataclass(slots=True)
class _Step:
    """One operation of a group, and the gradients that it needs."""

    op: Op
    reads: tuple[str, ...]
    """Names of the operations or matrices whose results it reads."""
    input_needed: bool
    """Whether its input needs a gradient: something before it is trained."""
    weights_needed: bool
    """Whether a matrix that it multiplies by is trained."""
    adapters: Ops
    shares_input: bool
    """Whether its adapters read its own input, not copies."""
    buffers_input: bool
    """Whether its frozen matrix keeps its input for nothing."""

    @property
    def keeps_input(self) -> bool:
        """Whether it saves its input, for the gradient of a weight or for nothing."""
        is_buffered = self.buffers_input and (self.input_needed or bool(self.adapters))
        return self.weights_needed or (bool(self.adapters) and self.shares_input) or is_buffered

    @property
    def kept_inputs(self) -> int:
        """Copies of its input that gradients need, where each matrix has one."""
        own = max(1, sum(len(weight.matrices) for weight in self.op.weights)) if self.weights_needed else 0
        return own or int(self.keeps_input)

    @property
    def result_needed(self) -> bool:
        """Whether its result has a gradient."""
        is_trained_here = bool(self.adapters) or any(weight.trained for weight in self.op.weights)
        return self.input_needed or self.weights_needed or is_trained_here


@dataclass(slots=True)
class _Traversal:
    """Traversal of a ledger from the embedding to the head, which collects the kinds of layers."""

    ledger: Ledger
    method: Method
    setting: SequenceSettings
    result_of: dict[tuple[int, bool, bool], tuple[int, bool]] = field(default_factory=dict)
    kinds: list[Ops] = field(default_factory=list)

    def kind(self, kind: int, *, is_frozen: bool, input_needed: bool) -> tuple[int, bool]:
        """Kind of a layer in the new ledger, and whether its output has a gradient."""
        key = (kind, is_frozen, input_needed)
        if key not in self.result_of:
            ops, output_needed = self.group(self.ledger.kinds[kind], input_needed=input_needed, is_frozen=is_frozen)
            self.result_of[key] = (len(self.kinds), output_needed)
            self.kinds.append(ops)
        return self.result_of[key]

    def group(self, ops: Ops, *, input_needed: bool, is_frozen: bool = False) -> tuple[Ops, bool]:
        """Operations of a group, and whether its output has a gradient."""
        needed = dict.fromkeys((GROUP, LAST_NORM, EVERYTHING, _BEFORE), input_needed)
        names = {GROUP: GROUP, LAST_NORM: GROUP, EVERYTHING: EVERYTHING, _BEFORE: GROUP}
        steps = []
        for plain in ops:
            trained = [not is_frozen and is_trained(part_of(plain, weight), self.method) for weight in plain.weights]
            weights = (replace(weight, trained=each) for weight, each in zip(plain.weights, trained, strict=True))
            op = replace(plain, weights=tuple(weights))
            reads = op.reads or (_BEFORE,)
            step = self._step(op, tuple(names.get(name, name) for name in reads), any(needed[name] for name in reads))
            for weight in op.weights:
                for matrix in weight.matrices:
                    is_adapted = is_target(matrix, self.method)
                    needed[matrix] = needed.get(matrix, step.input_needed) or weight.trained or is_adapted
            needed[op.name] = needed[_BEFORE] = step.result_needed
            needed[EVERYTHING] = needed[EVERYTHING] or step.result_needed
            names[_BEFORE] = op.name
            if op.name.endswith(".norm"):
                needed[LAST_NORM], names[LAST_NORM] = step.result_needed, op.name
            steps.append(step)
        return _with_backward(steps, needed), needed[EVERYTHING]

    def _step(self, op: Op, reads: tuple[str, ...], input_needed: bool) -> _Step:  # noqa: FBT001 - a property, not a mode
        is_shared_head = op.kind == "gemm" and not op.weights
        own = any(weight.trained for weight in op.weights if weight.role not in ("vector", "norm"))
        shared = is_trained("head", self.method)
        setting, adapted = self.setting, tuple(self._adapted(op))
        matrices = [matrix for weight in op.weights for matrix in weight.matrices]
        sharing = [matrix for _, matrix, _ in adapted if matrix in self.method.joint][1:]
        adapters = tuple(
            half
            for weight, matrix, rank in adapted
            for half in adapter_ops(op, weight, matrix, rank, setting)[1 if matrix in sharing else 0 :]
        )
        if setting.joins_projections and "q_proj" in matrices:
            adapters = _joined(adapters, is_partial=len(adapted) < len(matrices))
        shares = not (setting.casts_adapter_inputs or setting.drops_adapter_inputs)
        roles = ("matrix", "head") if setting.quantizes_head else ("matrix",)
        buffers = setting.keeps_quantized_inputs and any(weight.role in roles for weight in op.weights)
        return _Step(op, reads, input_needed, shared if is_shared_head else own, adapters, shares, buffers)

    def _adapted(self, op: Op) -> Iterator[tuple[Weight, MatrixName, int]]:
        """Weights that have an adapter, each with the matrix that it is of, and the adapter's rank."""
        # Source: huggingface/peft 0.21 utils/transformers_weight_conversion.py _convert_peft_config_moe: where experts
        # are stacked, targets of MLPs name their parameters alone, and gate and up share an adapter of twice the rank
        rank, stacks = self.method.rank or DEFAULT_RANK, self.setting.stacks_experts and self._is_sparse
        if self.method.name == "full" or (stacks and op.name.partition(".")[0] in ("mlp", "shared")):
            return
        for weight in op.weights:
            names: tuple[MatrixName, ...] = ("gate",) if op.name == "moe.router" else weight.matrices
            targets = [name for name in names if is_target(name, self.method)]
            if not targets or weight.trained or weight.role not in ("matrix", "head"):
                continue
            if stacks and op.holds_experts:
                yield replace(weight, matrices=(targets[0],)), targets[0], rank * len(targets)
            else:
                yield from ((replace(weight, matrices=names), name, rank) for name in targets)

    @property
    def _is_sparse(self) -> bool:
        return any(shape.is_sparse for shape in self.ledger.shapes)


def is_target(matrix: MatrixName, method: Method) -> bool:
    """Whether a matrix has an adapter."""
    return matrix in method.targets or ("all-linear" in method.targets and matrix != "lm_head")


def is_trained(part: PartName | None, method: Method) -> bool:
    """Whether the weights of a part are trained: all but frozen ones; under LoRA, those listed in `whole`."""
    return part not in method.frozen if method.name == "full" else part in method.whole


def is_trained_wide(part: PartName, method: Method) -> bool:
    """Whether a part is trained in the format of trained weights: beside adapters, in that of frozen ones.

    A part that is trained whole beside adapters is a copy of the frozen one (huggingface/peft 0.5.0 utils/other.py,
    ModulesToSaveWrapper).
    """
    return method.name == "full" and is_trained(part, method)


def _with_backward(steps: list[_Step], needed: dict[str, bool]) -> Ops:
    backwards = [_backward(step, needed) for step in steps]
    in_trained_layer = any(gradients or step.adapters for step, (*_, gradients) in zip(steps, backwards, strict=True))
    done: list[Op] = []
    for step, (flop, full_flop, gradients) in zip(steps, backwards, strict=True):
        backward = Backward(flop, full_flop, gradients, in_trained_layer)
        again = step.op.kernel_rerun_flop if gradients else 0
        saved = tuple(kept for one in step.op.saved for kept in _kept(one, step, steps, gradients))
        skips = step.op.skips_rerun and not step.adapters
        done.append(replace(step.op, backward=backward, kernel_rerun_flop=again, saved=saved, skips_rerun=skips))
        for half in step.adapters:  # the input of a second product always has a gradient
            count = 2 if not half.name.endswith(INNER_HALF) or step.input_needed else 1
            half_flop = count * half.flop
            skips = step.op.skips_rerun and half is step.adapters[-1]
            own_backward = Backward(half_flop, half_flop, count, in_trained_layer=True)
            kept = tuple(one for one in half.saved if step.input_needed or one.serves != "input")
            done.append(replace(half, backward=own_backward, saved=kept, skips_rerun=skips))
    return tuple(done)


def _backward(step: _Step, needed: dict[str, bool]) -> tuple[int, int, int]:
    """FLOP of the backward pass of an operation, over visible keys and over all keys, and its number of gradients."""
    op, full_flop = step.op, step.op.full_flop or step.op.flop
    if op.kind == "gemm":
        gradients = step.input_needed + step.weights_needed
        return gradients * op.flop, gradients * full_flop, gradients
    if not step.result_needed:
        return 0, 0, 0
    if not op.products:
        return 2 * op.flop, 2 * full_flop, 2
    live = [one for one in op.products if any(needed[name] for name in one.serves)]
    return sum(one.flop for one in live), sum(one.full_flop for one in live), 2 if live else 0


def _kept(saved: Saved, step: _Step, steps: list[_Step], gradients: int) -> tuple[Saved, ...]:
    """What gradients need of a saved tensor: all of it, as many copies as matrices read it, or nothing."""
    has_trained_norm = any(weight.trained and weight.role == "norm" for weight in step.op.weights)
    if saved.serves == "own_norm":
        return (saved,) if has_trained_norm else ()
    if saved.serves == "input":
        return (saved,) if step.input_needed else ()
    if saved.serves == "own_weights":
        return (saved,) if step.keeps_input else ()
    if saved.serves == "backward":
        return (saved,) if gradients > 0 or step.adapters else ()
    kept = sum(reader.kept_inputs for reader in steps if step.op.name in reader.reads)
    if not kept or saved.copies == 1:
        return (saved,) * bool(kept)
    return (replace(saved, bytes=saved.bytes // saved.copies * kept, copies=kept),)
