"""What does a model do, operation by operation? One table from which everything else is summed.

A ledger belongs to one model under one recipe and describes ONE SEQUENCE, undivided. Parameters,
FLOP, saved activations and moved bytes are sums over its operations; who divides an amount is a tag
(`Split`), and the axes say once by how much. All amounts are exact integers until a layout divides them.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from service.estimator.names import LayerType, MlpType, RecomputeModule


class Split(IntEnum):
    """Who divides an amount among the ranks of one pipeline stage; an index into `degrees.divisors`."""

    WHOLE = 0
    """Nobody: every rank holds it or does it."""
    TENSOR = 1
    """The tensor group."""
    KEY_VALUE = 2
    """The tensor group, up to one rank for each key-value head."""
    SEQUENCE = 3
    """The tensor group, where sequence parallelism is on."""
    VOCABULARY = 4
    """The tensor group, over the padded vocabulary."""
    EXPERT = 5
    """The expert group and the expert-tensor group."""
    EXPERT_TOKENS = 6
    """The tensor group, but for the ranks that share an expert's matrices and so see the same tokens."""


OpKind = Literal["gemm", "attention", "elementwise"]
WeightRole = Literal["matrix", "vector", "embedding", "head"]


@dataclass(frozen=True, slots=True)
class Weight:
    """One trained tensor: `copies` matrices of `rows` inputs and `columns` outputs."""

    rows: int
    columns: int
    split: Split = Split.WHOLE
    copies: int = 1
    role: WeightRole = "matrix"
    tied: bool = False
    """The same numbers as another tensor of the model: counted once, stored again on another stage."""

    @property
    def parameters(self) -> int:
        """Trained numbers in this tensor, undivided [1]."""
        return self.rows * self.columns * self.copies


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes of one sequence that stay in memory until the backward pass."""

    bytes: int
    split: Split
    modules: tuple[RecomputeModule, ...] = ()
    """Selective recompute of any of these drops them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation on one sequence."""

    name: str
    kind: OpKind
    split: Split
    """Who divides its work: FLOP and moved bytes."""
    weights: tuple[Weight, ...] = ()
    flop: int = 0
    """Forward FLOP over visible keys."""
    full_flop: int | None = None
    """Forward FLOP without any mask; the same as `flop` where None."""
    kernel_rerun_flop: int = 0
    """FLOP that the backward kernel repeats by itself (flash attention)."""
    saved: tuple[Saved, ...] = ()
    moved_bytes: int = 0
    """Bytes read and written in the forward pass, weights not counted."""
    whole_bytes: int = 0
    """The same, but moved in full by every rank of the split."""
    modules: tuple[RecomputeModule, ...] = ()
    """Selective recompute of any of these runs it again."""
    keeps_precision: bool = False
    """Its products stay in the attention's format where the others are in fp8 or fp4."""


Ops = tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What decides the operations of a layer, beside the model's widths."""

    mixer: LayerType
    """What mixes tokens."""
    mlp: MlpType
    """What mixes channels."""
    is_reuse: bool
    """Its block was held by an earlier layer already."""

    @property
    def is_sparse(self) -> bool:
        """Whether it has routed experts."""
        return "sparse" in self.mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every operation of a model under a recipe."""

    embedding: Ops
    """Before the first layer."""
    kinds: tuple[Ops, ...]
    """One entry for each distinct kind of layer."""
    shapes: tuple[LayerShape, ...]
    """What mixes tokens and channels in each kind."""
    layer_kinds: tuple[int, ...]
    """Kind of each layer, first to last."""
    depths: int = 0
    """Multi-token-prediction depths; each is one more layer of the last layer's kind, and its own operations."""
    depth: Ops = ()
    """Operations of one depth beside its layer."""
    head: Ops
    """After the last layer."""

    def kind_counts(self) -> tuple[int, ...]:
        """Layers of each kind in the model, multi-token-prediction depths not counted."""
        return tuple(self.layer_kinds.count(kind) for kind in range(len(self.kinds)))

    def layer_groups(self) -> tuple[tuple[int, Ops], ...]:
        """Layers of each kind, those of the depths counted, with their operations."""
        counts = list(self.kind_counts())
        counts[self.layer_kinds[-1]] += self.depths
        return tuple(zip(counts, self.kinds, strict=True))

    def groups(self) -> tuple[tuple[int, Ops], ...]:
        """Every group of operations of the whole model with how often it occurs."""
        return ((1, self.embedding), *self.layer_groups(), (self.depths, self.depth), (1, self.head))
