"""Trained parts of a model, adapters included, and the gradients that their backward pass needs.

A product of two operands costs as much again for each operand whose gradient is needed: its weights' where they are
trained, its input's where anything before it is. What no gradient needs is not kept in memory either.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from service.estimator.model.build import LEDGERS_KEPT, build_ledger
from service.estimator.model.layers.shared_transformer import SHARED
from service.estimator.model.ledger import (
    EVERYTHING,
    GROUP,
    LAST_NORM,
    Backward,
    Ledger,
    Op,
    Ops,
    Saved,
    Setting,
    Split,
    Weight,
)
from service.estimator.question import MatrixName, Method, Model, PartName, Recipe

DEFAULT_RANK = 8
"""Rank of an adapter where none is given. Source: huggingface/peft LoraConfig (r = 8)."""

DEFAULT_TARGETS: tuple[MatrixName, ...] = ("q_proj", "v_proj")
"""Adapted matrices where none are named.
Source: Hu et al. 2021, arXiv:2106.09685, section 7.1; huggingface/peft default targets of Llama."""

_JOINING: tuple[MatrixName, ...] = ("o_proj", "down_proj", "x_proj", "out_proj")
"""Matrices whose inputs tensor ranks share out; of the others they share out the outputs."""


def adapter_ops(op: Op, weight: Weight, targets: tuple[MatrixName, ...], rank: int, setting: Setting) -> Ops:
    """The adapters beside the matrices of one weight, each as the two products that it runs.

    An adapter reads what its matrix reads, and adds to what it writes. Tensor ranks hold whole the side of it that
    they do not share out of the matrix; routed experts have an adapter each.

    Tensor ranks exchange the narrow side, r numbers a token.

    Source:
        Hu et al. 2021, arXiv:2106.09685, section 4.1; tensor ranks: huggingface/peft tuners/lora/tp_layer.py
    """
    wanted = [matrix for matrix in weight.matrices if matrix in targets]
    return tuple(half for matrix in wanted for half in _halves(op, weight, matrix, rank, setting))


def _halves(op: Op, weight: Weight, matrix: MatrixName, rank: int, setting: Setting) -> Ops:
    columns, copies = weight.columns // len(weight.matrices), weight.copies
    uses = op.flop // sum(2 * each.rows * each.columns for each in op.weights if each.matrices)
    used_bytes = setting.element_bytes * uses
    narrow_side = Split.EXPERT_TOKENS if weight.split is Split.EXPERT else Split.WHOLE
    (first_held, first_done), (second_held, second_done) = _splits(op, weight, matrix)
    half = partial(Op, kind="gemm", whole_bytes=used_bytes * rank, modules=op.modules, keeps_precision=True)
    return (
        half(
            name=f"{op.name}.{matrix}.lora_a",
            split=first_done,
            weights=(Weight(weight.rows, rank, first_held, copies, "adapter"),),
            flop=2 * uses * weight.rows * rank,
            moved_bytes=used_bytes * weight.rows,
        ),
        half(
            name=f"{op.name}.{matrix}.lora_b",
            split=second_done,
            weights=(Weight(rank, columns, second_held, copies, "adapter"),),
            flop=2 * uses * rank * columns,
            saved=(Saved(used_bytes * rank, narrow_side, op.modules, "own_weights"),),
            moved_bytes=2 * used_bytes * columns,
        ),
    )


def _splits(op: Op, weight: Weight, matrix: MatrixName) -> tuple[tuple[Split, Split], tuple[Split, Split]]:
    """Ranks that divide the numbers and the work of the first and of the second half of an adapter."""
    shared, whole = (weight.split, op.split), (Split.WHOLE, Split.WHOLE)
    if weight.split in (Split.WHOLE, Split.EXPERT):
        return shared, shared
    return (shared, whole) if matrix in _JOINING else (whole, shared)


_BEFORE = "before"
_ROLES: dict[str, PartName] = {"norm": "norms", "embedding": "embedding", "head": "head"}
_PLACES: dict[str, PartName | None] = {
    "embedding": "embedding",
    "mlp": "mlp",
    "moe": "experts",
    "shared": "experts",
    "head": "head",
    "mtp": None,
}
"""Parts of operations by the first word of their names; whatever mixes tokens is attention."""


def method_of(recipe: Recipe) -> Method:
    """The training method of a recipe in its full form. LoRA has a rank and targets."""
    question = recipe.method if isinstance(recipe.method, Method) else Method(name=recipe.method)
    if question.name == "full":
        return question
    return replace(question, rank=question.rank or DEFAULT_RANK, targets=question.targets or DEFAULT_TARGETS)


def trains_everything(method: Method) -> bool:
    """Whether every parameter of the model is trained."""
    return method.name == "full" and not method.frozen and not method.frozen_layers


def part_of(op: Op, weight: Weight) -> PartName | None:
    """The part of the model that a weight belongs to. None for what only multi-token-prediction depths have."""
    if weight.role in _ROLES:
        return _ROLES[weight.role]
    return (
        "router"
        if op.name == "moe.router"
        else _PLACES.get(op.name.removeprefix(SHARED).partition(".")[0], "attention")
    )


@lru_cache(maxsize=LEDGERS_KEPT)
def ledger_of(model: Model, setting: Setting, method: Method) -> Ledger:
    """The ledger of a model of which a method trains all or a part, worked out once for all layouts."""
    return trained_ledger(build_ledger(model, setting), method, setting)


def trained_ledger(ledger: Ledger, method: Method, setting: Setting) -> Ledger:
    """The ledger with its frozen weights marked, its adapters added, and each backward pass as far as it is needed.

    Layers that differ in what is trained in or before them are kinds of their own.

    Source:
        Hu et al. 2021, arXiv:2106.09685, section 4.1; torch.autograd (requires_grad)
    """
    if trains_everything(method):
        return ledger
    walk = _Walk(ledger, method, setting)
    embedding, stream = walk.group(ledger.embedding, entering=False)
    layer_kinds = []
    for layer, kind in enumerate(ledger.layer_kinds):
        result, stream = walk.kind(kind, is_frozen=layer < method.frozen_layers, entering=stream)
        layer_kinds.append(result)
    depth_kind = walk.kind(ledger.depth_kind, is_frozen=False, entering=stream)[0] if ledger.depths else 0
    return replace(
        ledger,
        embedding=embedding,
        kinds=tuple(walk.kinds),
        shapes=tuple(ledger.shapes[kind] for kind, _, _ in walk.found),
        layer_kinds=tuple(layer_kinds),
        depth=walk.group(ledger.depth, entering=stream)[0],
        depth_kind=depth_kind,
        head=walk.group(ledger.head, entering=stream)[0],
    )


@dataclass(slots=True)
class _Step:
    """One operation on the way through a group."""

    op: Op
    reads: tuple[str, ...]
    """Names of the operations or matrices whose results it reads."""
    input_needed: bool
    """Something before it is trained."""
    weights_needed: bool
    """A matrix that it multiplies by is trained."""
    adapters: Ops

    @property
    def keeps_input(self) -> bool:
        """Whether a gradient of weights needs what it reads."""
        return self.weights_needed or bool(self.adapters)

    @property
    def result_needed(self) -> bool:
        """Whether its result has a gradient."""
        return self.input_needed or self.keeps_input or any(weight.trained for weight in self.op.weights)


@dataclass(slots=True)
class _Walk:
    """The way through a ledger, from the embedding to the head, and the kinds of layers met on it."""

    ledger: Ledger
    method: Method
    setting: Setting
    found: dict[tuple[int, bool, bool], tuple[int, bool]] = field(default_factory=dict)
    kinds: list[Ops] = field(default_factory=list)

    def kind(self, kind: int, *, is_frozen: bool, entering: bool) -> tuple[int, bool]:
        """The kind that a layer is, and whether what leaves it has a gradient."""
        key = (kind, is_frozen, entering)
        if key not in self.found:
            ops, leaving = self.group(self.ledger.kinds[kind], entering=entering, is_frozen=is_frozen)
            self.found[key] = (len(self.kinds), leaving)
            self.kinds.append(ops)
        return self.found[key]

    def group(self, ops: Ops, *, entering: bool, is_frozen: bool = False) -> tuple[Ops, bool]:
        """The operations of a group, and whether what leaves it has a gradient."""
        needed = dict.fromkeys((GROUP, LAST_NORM, EVERYTHING, _BEFORE), entering)
        names = {GROUP: GROUP, LAST_NORM: GROUP, EVERYTHING: EVERYTHING, _BEFORE: GROUP}
        steps = []
        for plain in ops:
            trained = [not is_frozen and _is_trained(part_of(plain, weight), self.method) for weight in plain.weights]
            weights = (replace(weight, trained=each) for weight, each in zip(plain.weights, trained, strict=True))
            op = replace(plain, weights=tuple(weights))
            reads = op.reads or (_BEFORE,)
            step = self._step(op, tuple(names.get(name, name) for name in reads), any(needed[name] for name in reads))
            for weight in op.weights:
                for matrix in weight.matrices:
                    adapted = matrix in self.method.targets
                    needed[matrix] = needed.get(matrix, step.input_needed) or weight.trained or adapted
            needed[op.name] = needed[_BEFORE] = step.result_needed
            needed[EVERYTHING] = needed[EVERYTHING] or step.result_needed
            names[_BEFORE] = op.name
            if op.name.endswith(".norm"):
                needed[LAST_NORM], names[LAST_NORM] = step.result_needed, op.name
            steps.append(step)
        return _with_backward(steps, needed), needed[EVERYTHING]

    def _step(self, op: Op, reads: tuple[str, ...], input_needed: bool) -> _Step:  # noqa: FBT001 - a fact, no switch
        is_shared_head = op.kind == "gemm" and not op.weights
        own = any(weight.trained for weight in op.weights if weight.role not in ("vector", "norm"))
        shared = _is_trained("head", self.method)
        adapters = tuple(
            half
            for weight in op.weights
            if self.method.name != "full" and weight.role in ("matrix", "head") and not weight.trained
            for half in adapter_ops(op, weight, self.method.targets, self.method.rank or DEFAULT_RANK, self.setting)
        )
        return _Step(op, reads, input_needed, shared if is_shared_head else own, adapters)


def _is_trained(part: PartName | None, method: Method) -> bool:
    """Whether a part of the model is trained itself: all but frozen ones, or those that are whole beside adapters."""
    return part not in method.frozen if method.name == "full" else part in method.whole


def _with_backward(steps: list[_Step], needed: dict[str, bool]) -> Ops:
    in_trained_layer = any(_gradients(step, needed) or step.adapters for step in steps)
    done: list[Op] = []
    for step in steps:
        gradients = _gradients(step, needed)
        backward = _backward(step, needed, gradients, in_trained_layer)
        again = step.op.kernel_rerun_flop if gradients else 0
        tensor_bytes = tuple(saved for saved in step.op.saved if _is_kept(saved, step, steps, gradients))
        done.append(replace(step.op, backward=backward, kernel_rerun_flop=again, saved=tensor_bytes))
        done.extend(_adapter(half, index, step) for index, half in enumerate(step.adapters))
    return tuple(done)


def _gradients(step: _Step, needed: dict[str, bool]) -> int:
    if step.op.kind == "gemm":
        return step.input_needed + step.weights_needed
    return 2 if step.result_needed and _products(step, needed) is not None else 0


def _products(step: _Step, needed: dict[str, bool]) -> tuple[int, int] | None:
    """FLOP of the backward products of an operation that multiplies results, over visible keys and over all."""
    if not step.op.products:
        return (2 * step.op.flop, 2 * (step.op.full_flop or step.op.flop))
    live = [one for one in step.op.products if any(needed[name] for name in one.serves)]
    return (sum(one.flop for one in live), sum(one.full_flop for one in live)) if live else None


def _backward(step: _Step, needed: dict[str, bool], gradients: int, in_trained_layer: bool) -> Backward:  # noqa: FBT001 - a fact, no switch
    op = step.op
    if op.kind == "gemm":
        flop, full = gradients * op.flop, gradients * (op.full_flop or op.flop)
    else:
        flop, full = (_products(step, needed) or (0, 0)) if gradients else (0, 0)
    return Backward(flop, full, gradients, in_trained_layer)


def _is_kept(saved: Saved, step: _Step, steps: list[_Step], gradients: int) -> bool:
    if saved.serves == "backward":
        return gradients > 0 or bool(step.adapters)
    if saved.serves == "own_weights":
        return step.keeps_input
    return any(reader.keeps_input for reader in steps if step.op.name in reader.reads)


def _adapter(half: Op, index: int, step: _Step) -> Op:
    """One half of an adapter: its weights' gradient always, its input's but for a first half that nothing precedes."""
    gradients = 2 if index % 2 or step.input_needed else 1
    flop = gradients * half.flop
    return replace(half, backward=Backward(flop, flop, gradients, in_trained_layer=True))
