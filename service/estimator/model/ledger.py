"""Table of a model's operations, from which all counts are summed, and the documents of its sequences.

A ledger belongs to one model under one recipe and describes one sequence, undivided. Parameters,
FLOP, saved activations and moved bytes are sums over its operations. A `Split` names the ranks that divide an
amount; `degrees.divisors` gives their number. All amounts are exact integers until a layout divides them.

Packed documents follow each other in full sequences, and attention stays inside each. A padded document has a
sequence of its own; a kernel for fixed lengths computes the padding too. A document longer than a sequence is split
over several.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction
from typing import Literal, NamedTuple

from service.estimator.question import BatchingName, LayerType, MatrixName, MlpType, Recipe, Recompute, RecomputeModule


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a recipe, cut into pieces that fit a sequence."""

    pieces: tuple[tuple[int, int], ...]
    """Tokens of a piece, and how many pieces have them."""
    batching: BatchingName

    @property
    def count(self) -> int:
        """Pieces in all [1]."""
        return sum(count for _, count in self.pieces)

    @property
    def tokens(self) -> int:
        """Tokens of all pieces [token]."""
        return sum(tokens * count for tokens, count in self.pieces)

    @property
    def squares(self) -> int:
        """Squared lengths of all pieces, summed [1]."""
        return sum(tokens**2 * count for tokens, count in self.pieces)


def documents_of(recipe: Recipe) -> Documents | None:
    """The documents of a recipe, cut to the length of a sequence; None where every sequence is one document."""
    if not recipe.document_lengths:
        return None
    pieces = []
    for length in recipe.document_lengths:
        full, rest = divmod(length.tokens, recipe.sequence_length)
        if full:
            pieces.append((recipe.sequence_length, full * length.count))
        if rest:
            pieces.append((rest, length.count))
    return Documents(tuple(pieces), recipe.batching)


def sequence_pairs_twice(documents: Documents | None, tokens: int, pairs_twice: Callable[[int], int]) -> int:
    """Twice the query-key pairs that attention computes in one sequence of the batch, rounded to a whole number here.

    Formula: one document, padded: P(s)        packed: s sum(n P(l)) / sum(n l)
    Args:
        documents: the documents, n pieces of l tokens each; None where every sequence is one document
        tokens: sequence length, s [token]
        pairs_twice: twice the visible pairs of one piece by its tokens, P
    Returns: twice the pairs of one sequence [1]
    Source: Megatron-LM training/training.py num_floating_point_operations (seqlen_squared_sum_in_batch in place of s^2)

    >>> sequence_pairs_twice(Documents(((2, 3), (4, 1)), "packed"), 10, lambda tokens: tokens**2)
    28
    """
    if documents is None or documents.batching == "padded":
        return pairs_twice(tokens)
    return _rounded(tokens * _pairs_of(documents, pairs_twice), documents.tokens)


def document_pairs_twice(documents: Documents | None, tokens: int, pairs_twice: Callable[[int], int]) -> int:
    """Twice the query-key pairs of one sequence without its padding, rounded to a whole number here.

    Formula: one document, packed: as computed        padded: sum(n P(l)) / sum(n)
    Args:
        documents: the documents, n pieces of l tokens each; None where every sequence is one document
        tokens: sequence length, s [token]
        pairs_twice: twice the visible pairs of one piece by its tokens, P
    Returns: twice the pairs of one sequence [1]
    Source: definition

    >>> document_pairs_twice(Documents(((2, 3), (4, 1)), "padded"), 10, lambda tokens: tokens**2)
    7
    """
    if documents is None or documents.batching == "packed":
        return sequence_pairs_twice(documents, tokens, pairs_twice)
    return _rounded(_pairs_of(documents, pairs_twice), documents.count)


def _pairs_of(documents: Documents, pairs_twice: Callable[[int], int]) -> int:
    return sum(count * pairs_twice(tokens) for tokens, count in documents.pieces)


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def trained_share(recipe: Recipe) -> Fraction:
    """The exact share of the computed tokens that are trained: all but padding."""
    documents = documents_of(recipe)
    if documents is None or documents.batching == "packed":
        return Fraction(1)
    return Fraction(documents.tokens, documents.count * recipe.sequence_length)


def trained_tokens(recipe: Recipe) -> float:
    """Tokens of one sequence that are trained, on average; padding is not.

    Formula: one document, packed: s        padded: sum(n l) / sum(n)
    Args:
        recipe: the recipe; n pieces of l tokens each
    Returns: tokens of one sequence [token]
    Source: definition

    >>> from service.estimator.question import DocumentLength
    >>> lengths = (DocumentLength(tokens=100, count=3), DocumentLength(tokens=300, count=1))
    >>> trained_tokens(Recipe(sequence_length=200, document_lengths=lengths, batching="padded"))
    120.0
    """
    return float(trained_share(recipe) * recipe.sequence_length)


def step_tokens(tokens: float, global_batch: int) -> float:
    """Tokens that one optimizer step trains.

    Formula: B s
    Args:
        tokens: trained tokens of one sequence, s [token]
        global_batch: sequences in one step, B [1]
    Returns: tokens of one step [token]
    Source: definition

    >>> step_tokens(120.0, 4)
    480.0
    """
    return tokens * global_batch


def padding_fraction(recipe: Recipe) -> float:
    """Share of the computed tokens that are padding.

    Formula: 1 - trained tokens / s
    Returns: share of the computed tokens [1]
    Source: definition

    >>> padding_fraction(Recipe(sequence_length=200))
    0.0
    """
    return float(1 - trained_share(recipe))


class Split(IntEnum):
    """Ranks of one pipeline stage that divide an amount; an index into `degrees.divisors`."""

    WHOLE = 0
    """No group: every rank holds it or does it."""
    TENSOR = 1
    KEY_VALUE = 2
    """The tensor group, up to one rank for each key-value head."""
    SEQUENCE = 3
    """The tensor group, where sequence parallelism is on."""
    VOCABULARY = 4
    """The tensor group, over the padded vocabulary."""
    EXPERT = 5
    """The expert group and the expert-tensor group."""
    EXPERT_TOKENS = 6
    """The tensor group over the expert-tensor group, whose ranks split an expert and have the same tokens."""
    GATHERED = 7
    """No group. The amount is all-gathered by sequence parallelism; without it, the amount is 0."""
    BATCHED = 8
    """The tensor group. With one sequence a micro-batch, the amount is 0."""


OpKind = Literal["gemm", "attention", "elementwise"]
WeightRole = Literal["matrix", "vector", "norm", "embedding", "head", "adapter"]
SavedFor = Literal["backward", "input", "own_norm", "own_weights", "next_weights"]

GROUP, LAST_NORM, EVERYTHING = "group", "norm", "everything"
"""Inputs of an operation beside named ones: the input of its group, the last norm before it, all results before it."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor of numbers: `copies` matrices of `rows` inputs and `columns` outputs."""

    rows: int
    columns: int
    split: Split = Split.WHOLE
    copies: int = 1
    role: WeightRole = "matrix"
    tied: bool = False
    """The same numbers as another tensor of the model: counted once, stored again on another stage."""
    matrices: tuple[MatrixName, ...] = ()
    """Names of the matrices of equal width that it concatenates; adapters select them by name."""
    trained: bool = True
    """It has gradients, optimizer states and updates; else it is frozen."""

    @property
    def parameters(self) -> int:
        """Numbers in this tensor, undivided [1]."""
        return self.rows * self.columns * self.copies


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes of one sequence that stay in memory until the backward pass."""

    bytes: int
    split: Split
    modules: tuple[RecomputeModule, ...] = ()
    """Selective recompute of any of these drops them."""
    serves: SavedFor = "backward"
    """Gradients that need it: any of its operation, that of its input or its norm's scale, those of its matrices, or of
    the matrices that read its result."""
    copies: int = 1
    """Equal copies that it consists of, one for each matrix that reads them."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """One product of the backward pass of an operation without weights."""

    flop: int
    """Its FLOP over visible keys."""
    full_flop: int
    serves: tuple[str, ...]
    """Matrices before it; it is computed where the gradient of the result of one of them is needed."""


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward pass of an operation where not everything in or before it is trained."""

    flop: int
    """Its FLOP over visible keys."""
    full_flop: int
    gradients: int
    """Number of gradients, of inputs and of weights, 0 to 2; each moves as many bytes as the forward pass."""
    in_trained_layer: bool
    """Whether any operation of its layer has a backward pass; recompute repeats no other layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation on one sequence."""

    name: str
    kind: OpKind
    split: Split
    """Ranks that divide its work: FLOP and moved bytes."""
    weights: tuple[Weight, ...] = ()
    flop: int = 0
    """Forward FLOP over visible keys."""
    full_flop: int | None = None
    """Forward FLOP without any mask; the same as `flop` where None."""
    document_flop: int | None = None
    """Forward FLOP over the documents of a padded sequence alone; in proportion to their tokens where None."""
    result_bytes: int = 0
    """Bytes of one sequence: an attention kernel's result, and what its backward pass reads beside it."""
    kernel_rerun_flop: int = 0
    """FLOP that the backward kernel repeats by itself (flash attention)."""
    saved: tuple[Saved, ...] = ()
    transient: tuple[Saved, ...] = ()
    """Bytes that are live only while its backward pass runs: gradients of its inputs and results, gathered inputs."""
    moved_bytes: int = 0
    """Bytes read and written in the forward pass, weights not counted."""
    whole_bytes: int = 0
    """The same, but moved in full by every rank of the split."""
    modules: tuple[RecomputeModule, ...] = ()
    """Selective recompute of any of these runs it again."""
    products_before: int = 0
    """Matrices of the earlier products of its layer."""
    is_row_parallel: bool = False
    """Tensor ranks split the inner dimension of its product and sum partial results; else they split the columns."""
    score_width: int = 0
    """Multiply-adds of core attention for one query-key pair, over all heads; 0 for other operations."""
    skips_rerun: bool = False
    """Full recompute of its layer stops before it, as nothing after its inputs is saved."""
    keeps_precision: bool = False
    """Its products stay in the attention's format where the others are in fp8 or fp4."""
    is_wide: bool = False
    """Its products are in fp32 where the others are autocast."""
    reads: tuple[str, ...] = ()
    """Operations of its group whose results it reads, or GROUP, LAST_NORM, EVERYTHING; the one before where empty."""
    products: tuple[Gradient, ...] = ()
    """Products of its backward pass, where it multiplies activations; empty where each operand has one product."""
    backward: Backward | None = None
    """Its backward pass where it differs from that of full training, as `trained_ledger` decides."""

    @property
    def backward_flop(self) -> int:
        """FLOP of its backward pass over visible keys: twice the forward pass where all is trained [FLOP]."""
        return 2 * self.flop if self.backward is None else self.backward.flop

    @property
    def backward_full_flop(self) -> int:
        """The same without any mask [FLOP]."""
        forward = self.flop if self.full_flop is None else self.full_flop
        return 2 * forward if self.backward is None else self.backward.full_flop

    @property
    def gradients(self) -> int:
        """Gradients that its backward pass computes: of inputs and of weights [1]."""
        return 2 if self.backward is None else self.backward.gradients

    @property
    def is_core(self) -> bool:
        """Whether it is core attention."""
        return self.score_width > 0

    @property
    def holds_experts(self) -> bool:
        """Whether its weights are experts'."""
        return bool(self.weights) and self.weights[0].split is Split.EXPERT

    @property
    def in_trained_layer(self) -> bool:
        """Whether the backward pass reaches its layer."""
        return self.backward is None or self.backward.in_trained_layer


Ops = tuple[Op, ...]

WIDE_BYTES = 4
"""Bytes of one number in fp32. Source: IEEE 754, binary32."""


class LayerShape(NamedTuple):
    """Kind of a layer: with the model's widths it determines the operations."""

    mixer: LayerType
    mlp: MlpType
    """What mixes channels."""
    is_reuse: bool
    """Whether it shares its block with an earlier layer."""

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
    """Operations of each distinct kind of layer."""
    shapes: tuple[LayerShape, ...]
    layer_kinds: tuple[int, ...]
    """Kind of each layer, first to last."""
    depths: int = 0
    """Multi-token-prediction depths; each is one more layer, and its own operations."""
    depth: Ops = ()
    """Operations of one depth beside its layer."""
    depth_kind: int = -1
    """Kind of each depth's layer."""
    head: Ops
    """After the last layer."""

    def kind_counts(self) -> tuple[int, ...]:
        """Layers of each kind in the model, multi-token-prediction depths not counted."""
        return tuple(self.layer_kinds.count(kind) for kind in range(len(self.kinds)))

    def layer_groups(self) -> tuple[tuple[int, Ops], ...]:
        """Layers of each kind, those of the depths counted, with their operations."""
        counts = list(self.kind_counts())
        counts[self.depth_kind] += self.depths
        return tuple(zip(counts, self.kinds, strict=True))

    def groups(self) -> tuple[tuple[int, Ops], ...]:
        """Every group of operations of the whole model with how often it occurs."""
        return ((1, self.embedding), *self.layer_groups(), (self.depths, self.depth), (1, self.head))


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceSettings:
    """Settings of the operations of one sequence."""

    tokens: int
    """Tokens of the sequence, s."""
    element_bytes: int
    keeps_scores: bool = False
    """Attention scores are written to memory and kept (eager attention)."""
    drops_out: bool = False
    """Dropout is on, and its masks are kept."""
    fused_norm: bool = True
    """Norms keep only their input and output."""
    joins_norms: bool = False
    """The norm before a dense product is part of that product's module, which selective recompute leaves alone;
    software of its own recomputes every norm. Source: DeepSeek-V3, arXiv:2412.19437, section 3.2.3."""
    fused_activation: bool = True
    """The activation keeps only its inputs and output."""
    repeats_key_values: bool = False
    """Keys and values are copied to every query head before attention."""
    rotary_bytes: float = 0.0
    """Traffic of rotating one number of a query or key, where that is no part of a fused kernel [byte]."""
    masks_windows: bool = False
    """The fused kernel takes a window as a mask of all pairs, which it keeps, and every query head's own keys."""
    copies_result: bool = False
    """The attention kernel's result is kept a second time, in the order of the other activations."""
    product_bytes: float | None = None
    """Bytes of one number that a matrix product keeps of its input; that of an activation where None."""
    activation_input_bytes: float | None = None
    """Bytes of one number that the activation of an MLP keeps of its input; that of an activation where None."""
    result_bytes: float | None = None
    """Bytes of one number of attention's result that its output projection keeps; that of an activation where None."""
    casts_each_input: bool = False
    """Every matrix product saves its own cast of its input (autocast over fp32 weights)."""
    wide_stream: bool = False
    """The residual stream is in fp32 under autocast, as the embedding is."""
    casts_adapter_inputs: bool = False
    """Every adapter saves its own cast of its input."""
    stops_early: bool = False
    """Recompute of a layer stops once all that it had saved is there."""
    drops_adapter_inputs: bool = False
    """Every adapter saves a copy of its input after dropout, and a mask of one byte a number."""
    joins_projections: bool = False
    """Queries, keys and values are one result, which stays whole for the values; their adapters share an input."""
    caps_scores: bool = False
    """Eager attention keeps scores after their tanh, and their softmax in fp32 beside that in its own format."""
    copies_heads: bool = False
    """The heads' result is copied before the output projection."""
    keeps_quantized_inputs: bool = False
    """Matrices of 4 bits keep their input, which no gradient needs."""
    quantizes_head: bool = False
    """The head is among the matrices of 4 bits."""
    wide_experts: bool = False
    """Routed experts compute in fp32, whatever the rest does."""
    runs_transformers: bool = False
    """Layers are those of transformers."""
    stacks_experts: bool = False
    """Matrices of all experts are one parameter, gate and up together, which peft adapts in place of the MLPs'."""
    counts_products: bool = False
    """Recompute selects single operations, which need their place among the layer's matrix products."""
    keeps_embedding: bool = False
    """The embedding's result is kept beside the first layer's input."""
    weighs_results: bool = False
    """Router weights multiply experts' results after their last product, and results are saved; else before it."""
    weighs_wide: bool = False
    """Router weights multiply in fp32, and what they multiply is saved so."""
    fuses_mixer_output: bool = True
    """The kernel of a state space recomputes its norm and output from what the scan saved."""
    expert_load: float = 1.0
    """Tokens that the fullest rank's experts work on, over those that tokens choose on average."""
    documents: Documents | None = None
    """The documents that sequences are made of; None where every sequence is one document."""

    def tensor_bytes(self, width: int) -> int:
        """Bytes of `width` activations for each token [byte]."""
        return self.element_bytes * self.tokens * width

    def product_input_bytes(self, numbers: int, readers: int = 1) -> int:
        """Bytes that matrix products save of an input of `numbers` numbers [byte]."""
        each = self.element_bytes if self.product_bytes is None else self.product_bytes
        return round(numbers * each * (readers if self.casts_each_input else 1))

    def activation_bytes(self, numbers: int) -> int:
        """Bytes that the activation of an MLP saves of an input of `numbers` numbers [byte]."""
        each = self.element_bytes if self.activation_input_bytes is None else self.activation_input_bytes
        return round(numbers * each)


def is_rerun(op: Op, rule: Recompute) -> bool:
    """Whether an operation of a recomputing layer runs forward twice; never where no backward pass reaches it."""
    if rule.granularity == "none" or not op.in_trained_layer:
        return False
    if by_operation(rule):
        return op.kind != "attention"
    if rule.granularity == "selective":
        return any(module in rule.modules for module in op.modules)
    return rule.granularity == "full" and not op.skips_rerun


def by_operation(rule: Recompute) -> bool:
    """Whether selective recompute selects single operations: it saves attention and every second matrix product."""
    # Source: pytorch/torchtitan distributed/activation_checkpoint.py (selective op)
    return rule.granularity == "selective" and "op" in rule.modules


def kept_matrices(op: Op) -> list[Weight]:
    """Matrices whose products selective recompute of operations saves: the first of a layer and every second one."""
    named = [(weight, name) for weight in op.weights for name in weight.matrices]
    pairs = [pair for place, pair in enumerate(named) if (op.products_before + place) % 2 == 0]
    return [replace(weight, columns=weight.columns // len(weight.matrices), matrices=(name,)) for weight, name in pairs]


def rerun_flop(op: Op, rule: Recompute) -> int:
    """Forward FLOP over visible keys that recompute repeats of an operation of a layer.

    Formula: all of it where the operation runs again; by operation, that of the matrices whose products are not kept
    Returns: FLOP of one sequence [FLOP]
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 5; by_operation

    >>> from service.estimator.model.ledger import Split
    >>> rerun_flop(Op(name="n", kind="gemm", split=Split.WHOLE, flop=8), Recompute(granularity="full"))
    8
    """
    if not is_rerun(op, rule):
        return 0
    columns = sum(weight.columns for weight in op.weights if weight.matrices)
    if not by_operation(rule) or not columns:
        return op.flop
    return op.flop * (columns - sum(weight.columns for weight in kept_matrices(op))) // columns
