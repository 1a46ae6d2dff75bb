"""Seconds that one rank computes: a roofline for each operation of the ledger, and the sum of gradients."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from service.estimator.constants import LAUNCH_SECONDS, NEWEST_KERNEL, product_scale, streaming_bytes_per_s
from service.estimator.degrees import WEIGHTS, Degrees, divisors
from service.estimator.model.build import INNER_HALF
from service.estimator.model.ledger import Op, OpKind, Ops, Split, is_rerun, rerun_flop
from service.estimator.numeric import Amount, both, maximum, where
from service.estimator.parallelism.stages import RankParameters
from service.estimator.question import AttentionName, ContextMethod, DispatcherName, Model
from service.estimator.software.precision import Format, fp8_attention_gains, known_peak_flop_per_s, quantization_of
from service.estimator.software.versions import at_least, generation
from service.estimator.time.rates import (
    MOST_FRACTION,
    AttentionRate,
    FusedName,
    ProductRates,
    attention_fraction,
    attention_rate,
    format_rate,
    generation_rates,
    matrix_product_seconds,
    rates_under,
    traffic_bytes_per_s,
)
from service.estimator.workload import Workload, quantizes_head

CAST_BYTES = 4.0
"""Traffic of turning one number into fp8 with one scale a tensor: read in two bytes, written row- and column-wise.
Source: NVIDIA/TransformerEngine@v2.11 common/transpose/cast_transpose.cu."""

ROWWISE_BYTES = 3.0
"""The same without the copy column by column. Source: the same, common/util/cast.cu."""

TRANSPOSE_BYTES = 2.0
"""Traffic of that copy alone, of a number in fp8. Source: the same, common/transpose/transpose.cu."""


def reads_either_side(workload: Workload) -> bool:
    """Whether products in fp8 with one scale a tensor read a matrix row by row and column by column.

    Formula: Transformer Engine on Blackwell
    Returns: whether they do, so that no operand is transposed
    Source: NVIDIA/TransformerEngine@v2.11 common/transformer_engine.cpp (nvte_is_non_tn_fp8_gemm_supported)

    >>> from service.estimator.samples import sample_workload
    >>> reads_either_side(sample_workload())
    False
    """
    return workload.implementation.uses_transformer_engine and generation(workload.gpu) == "Blackwell"


def cast_bytes(workload: Workload) -> float:
    """Memory traffic of turning one number into the format of the products.

    Formula:
        one scale a tensor: CAST_BYTES, or ROWWISE_BYTES where products read either side; one a block: what benchmarks
        of such products show, and no less than CAST_BYTES
    Returns: bytes of one number [byte]
    Source: CAST_BYTES; ROWWISE_BYTES; rates.MATRIX_RATES (quantise_bytes)

    >>> from service.estimator.samples import sample_workload
    >>> cast_bytes(sample_workload())
    4.0
    """
    if workload.recipe.precision == "fp8-tensorwise":
        return ROWWISE_BYTES if reads_either_side(workload) else CAST_BYTES
    measured = format_rate(generation_rates(workload.gpu), workload.precision.matrix_format).quantise_bytes
    return max(CAST_BYTES, measured)


def gathered_cast_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Memory traffic of turning one number that tensor ranks gather into the format of the products.

    Formula:
        c; where they gather it in that format each casts its own share, c / t, and with one scale a tensor
        ROWWISE_BYTES / t, and transposes what it has received
    Args:
        workload: the workload, with c = cast_bytes
        degrees: the layout, t tensor ranks
    Returns: bytes of one number on one rank [byte]
    Source: NVIDIA/TransformerEngine@v2.11 pytorch/distributed.py (_all_gather_fp8, _all_gather_mxfp8)

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> gathered_cast_bytes(sample_workload(), sample_degrees(tensor=4))
    4.0
    """
    each = cast_bytes(workload)
    if not workload.implementation.overlap.gathers_narrow:
        return each
    shared: Amount = each / degrees.tensor
    if workload.recipe.precision == "fp8-tensorwise" and not reads_either_side(workload):
        shared = ROWWISE_BYTES / degrees.tensor + TRANSPOSE_BYTES
    return where(both(degrees.sequence_parallel == 1, degrees.tensor > 1), shared, each)


def weight_cast_seconds(workload: Workload, parameters: RankParameters) -> Amount:
    """Seconds that one rank takes each step to turn its weights into the format of the products.

    Formula: N c / W; none where products are not narrow, or weights are kept in fp8 with one scale a tensor
    Args:
        workload: the workload, with c = cast_bytes
        parameters: parameters of the rank, N of them trained
    Returns: seconds of one step [s]
    Source:
        Transformer Engine user guide, FP8 primer (is_first_microbatch); Megatron-LM fp8-param-gather (MXFP8 is made of
        gathered bf16 weights)

    >>> from service.estimator.samples import sample_workload, sample_rank_load
    >>> weight_cast_seconds(sample_workload(), sample_rank_load().parameters)
    0.0
    """
    is_narrow = workload.precision.matrix_format in ("fp8", "fp4")
    is_stored_narrow = workload.recipe.fp8_weights and workload.recipe.precision == "fp8-tensorwise"
    if not is_narrow or is_stored_narrow:
        return 0.0
    numbers = parameters.dense_trained + parameters.expert_trained
    return numbers * cast_bytes(workload) / streaming_bytes_per_s(workload.gpu, workload.constants.memory_fraction)


CLOCK_EXPONENT = 0.5
"""Exponent of the rate of arithmetic over (power limit / rated power): between 1/3, where power grows with the cube of
the clock, and 1, where power grows with the clock.
Source: published steps on H100 held to 500 of 700 W, which run at 0.84 of the usual clock (0.84 = (5/7)^0.5)."""


def clock_fraction(power_limit_watts: float | None, board_watts: float) -> float:
    """Share of its usual rate of arithmetic that a GPU keeps under a limit on its power.

    Formula: min(1, P / P_rated) ^ 0.5
    Args:
        power_limit_watts: the limit, P; none where None [W]
        board_watts: the rated power, P_rated [W]
    Returns: share of the rate [1]
    Source: CLOCK_EXPONENT

    >>> clock_fraction(175.0, 700.0), clock_fraction(None, 700.0)
    (0.5, 1.0)
    """
    return 1.0 if power_limit_watts is None else min(1.0, power_limit_watts / board_watts) ** CLOCK_EXPONENT


def limited_watts(workload: Workload) -> float:
    """Power of one busy GPU board: its rated power, or the limit where that is lower.

    Formula: min(P, P_rated)
    Returns: power [W]
    Source: definition

    >>> from service.estimator.samples import sample_workload
    >>> limited_watts(sample_workload())
    700.0
    """
    limit = workload.cluster.power_limit_watts
    return workload.gpu.board_watts if limit is None else min(limit, workload.gpu.board_watts)


@dataclass(slots=True, kw_only=True)
class ProductShape:
    """The forward product of one operation on one rank; the backward products permute its three sizes."""

    rows: Amount
    """Tokens of one product, m."""
    columns: Amount
    """Numbers that it writes for each token, n."""
    inner: Amount
    """Length of the sum for each of them, k."""
    copies: Amount
    """Products of this shape that run as one kernel: the experts of a rank."""

    @property
    def input_gradient(self) -> "ProductShape":
        """The product that gives the gradient of the input: the result's gradient times the weights, transposed."""
        return ProductShape(rows=self.rows, columns=self.inner, inner=self.columns, copies=self.copies)

    @property
    def weight_gradient(self) -> "ProductShape":
        """The product that gives the gradient of the weights: the input, transposed, times the result's gradient."""
        return ProductShape(rows=self.inner, columns=self.columns, inner=self.rows, copies=self.copies)


def product_shape(op: Op, model: Model, degrees: Degrees, split: tuple[Amount, ...]) -> ProductShape:
    """The shape of an operation's forward product on one rank, for one micro-batch.

    Formula:
        columns / t, or inner / t where tensor ranks sum in parts; experts / e copies, their inner widths / e_t;
        rows = tokens b / c, over t where ranks share out tokens, over the copies
    Args:
        op: the operation, a matrix product
        split: divisor of each split [1]
    Returns: the shape [1]
    Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Megatron-Core moe README (experts)

    >>> from service.estimator.model.ledger import Weight
    >>> from service.estimator.samples import LLAMA_3_8B, sample_degrees
    >>> weight = Weight(64, 32, Split.TENSOR)
    >>> op = Op(name="o", kind="gemm", split=Split.TENSOR, weights=(weight,), flop=1 << 15, is_row_parallel=True)
    >>> shape = product_shape(op, LLAMA_3_8B, sample_degrees(tensor=4), (1, 4))
    >>> shape.rows, shape.columns, shape.inner, shape.copies
    (8.0, 32, 16.0, 1)
    """
    inner: Amount = max((weight.rows for weight in op.weights), default=model.hidden_size)
    columns: Amount = sum(weight.columns for weight in op.weights if weight.rows == inner) or model.vocab_size
    rows = op.flop // (2 * inner * columns) * degrees.micro_batch / degrees.context
    copies: Amount = 1
    divisor: Amount = 1
    if op.holds_experts:
        copies, divisor = op.weights[0].copies / degrees.expert, degrees.expert_tensor
        rows = rows / split[Split.EXPERT_TOKENS] / copies
    elif op.split in (Split.TENSOR, Split.VOCABULARY):
        divisor = split[op.split]
    else:
        rows = rows / split[op.split]
    if op.is_row_parallel:
        inner = inner / divisor
    else:
        columns = columns / divisor
    return ProductShape(rows=rows, columns=columns, inner=inner, copies=copies)


SCAN_KERNEL: FusedName = "flash-2"
"""Kernel whose rate is used for the scans of recurrent layers, which are not measured."""


@dataclass(frozen=True, slots=True)
class Products:
    """Rates of matrix products of one format."""

    plain: ProductRates
    """Products that overwrite their result."""
    adding: ProductRates
    """Gradients of weights, which add to those of earlier micro-batches where the stack fuses the addition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates that one GPU reaches inside a step."""

    products: Products
    """Matrix products in the recipe's format."""
    wide_products: Products
    """Matrix products that stay in the attention's format."""
    full_products: Products
    """Matrix products in fp32."""
    is_narrow: bool
    """Whether the recipe's format is narrower than that of activations."""
    attention: AttentionRate
    """Rate of the kernel of attention or a scan, as shares of attention_flop_per_s."""
    attention_gain_fraction: tuple[float, float]
    """What a narrow format makes of that rate, forward and backward."""
    attention_flop_per_s: float
    """Dense peak of the attention's format, times the kernel's scale inside a step."""
    eager_flop_per_s: float
    """Rate of the two products of eager attention."""
    bytes_per_s: float
    """Rate of memory traffic."""

    def of(self, op: Op) -> Products:
        """Rates of an operation's products."""
        if op.is_wide:
            return self.full_products
        return self.wide_products if op.keeps_precision else self.products


def fused_kernel(kernel: AttentionName) -> FusedName:
    """The fused kernel whose rates apply to attention and scans.

    >>> fused_kernel("cudnn"), fused_kernel("eager")
    ('cudnn', 'flash-2')
    """
    if kernel == "eager":
        return SCAN_KERNEL
    return SCAN_KERNEL if kernel == "flash" else kernel


def stack_scale(workload: Workload) -> float:
    """Factor that a job's stack puts on the seconds of a step.

    Formula: that of its stack and implementation; 1 where no published step has them
    Returns: the scale [1]
    Source: StepConstants.stack_scales

    >>> from service.estimator.samples import sample_workload
    >>> 0.75 < stack_scale(sample_workload()) < 1.35
    True
    """
    implementation = workload.software.implementation
    return workload.constants.stack_scales.get((workload.software.name, implementation), 1.0)


def rates_of(workload: Workload) -> Rates:
    """The rates that a job's kernels reach on its GPU."""
    constants, gpu, model = workload.constants, workload.gpu, workload.model
    wide, scales = workload.precision.attention_format, workload.constants.attention_scales
    peak = known_peak_flop_per_s(gpu, wide) * _clock(workload)
    kernel = fused_kernel(workload.kernel)
    widths = (model.head_width,) * 2 if model.kv_lora_rank is None else (model.query_width, model.value_width)
    attention = attention_rate(kernel, gpu, *widths)
    is_narrow = workload.software.fp8_attention
    gains = fp8_attention_gains(workload.recipe.precision, gpu, sum(widths) / 2) if is_narrow else None
    most = (
        MOST_FRACTION * min(1.0, stack_scale(workload)) / max(attention.forward_fraction, attention.backward_fraction)
    )
    aligned = workload.kernel != "eager" or widths[0] % ALIGNED_HEAD == 0
    wide_products, narrow = products_of(workload, wide), workload.precision.matrix_format
    return Rates(
        products=wide_products if narrow == wide else products_of(workload, narrow),
        wide_products=wide_products,
        full_products=wide_products if gpu.fp32_flop_per_s is None else products_of(workload, "fp32"),
        is_narrow=workload.precision.matrix_format in ("fp8", "fp4"),
        attention=attention,
        attention_gain_fraction=gains or (1.0, 1.0),
        attention_flop_per_s=peak * min(scales.get(kernel, scales[NEWEST_KERNEL]), most),
        eager_flop_per_s=peak
        * constants.eager_attention_fraction
        * (1.0 if aligned else constants.misaligned_head_fraction),
        bytes_per_s=streaming_bytes_per_s(gpu, constants.memory_fraction),
    )


ALIGNED_HEAD = 8
"""Heads whose width is a multiple of this run at full rate in batched products of 16-bit numbers.
Source: NVIDIA, Matrix Multiplication Background User's Guide, section 2 (16 bytes of alignment)."""


def products_of(workload: Workload, number_format: Format) -> Products:
    """Rates of matrix products in one format, at most its peak."""
    measured = generation_rates(workload.gpu)
    rate = format_rate(measured, number_format)
    most = min(1.0, stack_scale(workload)) / rate.peak_fraction
    scale = min(product_scale(workload.constants, workload.gpu), most) * _clock(workload)
    plain, adding = (
        replace(
            rates_under(measured, workload.gpu, number_format, scale, adds=adds),
            fill_numbers=workload.constants.fill_numbers,
            bytes_per_s=traffic_bytes_per_s(rate, workload.gpu, workload.constants.memory_fraction),
        )
        for adds in (False, bool(workload.software.gradient_fusion))
    )
    return Products(plain, adding)


def _clock(workload: Workload) -> float:
    return clock_fraction(workload.cluster.power_limit_watts, workload.gpu.board_watts)


ProductName = Literal["forward", "input_gradient", "weight_gradient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProduct:
    """One product of one operation."""

    name: str
    """Name of the operation."""
    product: ProductName
    shape: ProductShape
    """Sizes of this product; grouped experts are its copies."""
    format: Format
    count: Amount
    """Times that one step runs it, over one rank of every pipeline stage."""

    @property
    def flop(self) -> Amount:
        """Its FLOP, once [FLOP]."""
        shape = self.shape
        return 2 * shape.rows * shape.columns * shape.inner * shape.copies


def rank_products(workload: Workload, degrees: Degrees) -> tuple[RankProduct, ...]:
    """The matrix products of one step on one rank of every pipeline stage, without the repetitions of recompute.

    Equal products of different operations are separate entries.

    Source:
        the ledger; Kaplan et al. 2020, arXiv:2001.08361, section 2.1 (a product for each gradient that is needed)

    >>> from service.estimator.samples import sample_degrees, sample_workload

    >>> first = rank_products(sample_workload(), sample_degrees())[0]

    >>> first.name, first.product, first.count, first.flop == 2 * 8192 * 4096 * 6144
    ('attention.qkv', 'forward', 32, True)
    """
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    return tuple(
        result
        for times, ops in workload.ledger.groups()
        for op in ops
        if times and op.kind == "gemm" and op.flop
        for result in _layer_products(
            op, product_shape(op, workload.model, degrees, split), workload, times * degrees.accumulation
        )
    )


def _layer_products(op: Op, shape: ProductShape, workload: Workload, times: Amount) -> Iterator[RankProduct]:
    """The products of one operation: the forward one, and one for each needed gradient."""
    number_format = workload.precision.attention_format if op.keeps_precision else workload.precision.matrix_format
    if op.is_wide:
        number_format = "fp32"
    is_trained = any(weight.trained for weight in op.weights)
    shapes: dict[ProductName, ProductShape] = {"forward": shape}
    if op.gradients == 2 or (op.gradients and not is_trained):
        shapes["input_gradient"] = shape.input_gradient
    if op.gradients == 2 or (op.gradients and is_trained):
        shapes["weight_gradient"] = shape.weight_gradient
    for name, result in shapes.items():
        is_ungrouped = op.holds_experts and not workload.software.grouped_experts
        count = times * (result.copies if is_ungrouped else 1)
        run = replace(result, copies=1) if is_ungrouped else result
        yield RankProduct(name=op.name, product=name, shape=run, format=number_format, count=count)


ALIGNED_SIDES = {"Ampere": 64}
"""Products run at full rate where the sides of a matrix are multiples of this; of ALIGNED_SIDE on other generations.
Source: NVIDIA, Matrix Multiplication Background User's Guide, section 2 (128 bytes of 16-bit numbers on A100)."""

ALIGNED_SIDE = 8
"""Source: the same (16 bytes of 16-bit numbers)."""


@dataclass(slots=True, kw_only=True)
class ComputeSeconds:
    """Seconds of computing by kind of kernel."""

    gemm: Amount = 0.0
    attention: Amount = 0.0
    elementwise: Amount = 0.0
    cast: Amount = 0.0
    """Conversion of operands to narrow formats, and of frozen matrices of 4 bits to wide ones."""
    loss: Amount = 0.0
    recompute: Amount = 0.0
    """Recomputed forward passes, of all kinds of kernels."""
    forward: Amount = 0.0
    """The part of gemm, attention and elementwise that is forward passes."""
    host: Amount = 0.0
    """Time that the device waits for kernel launches of the host; transfers go on meanwhile."""

    @property
    def total_seconds(self) -> Amount:
        """Sum of all kinds [s]; `forward` is part of them."""
        return self.gemm + self.attention + self.elementwise + self.cast + self.loss + self.recompute + self.host

    def plus(self, other: "ComputeSeconds", count: Amount) -> "ComputeSeconds":
        """The sum of this and `count` times another."""
        if isinstance(count, int) and not count:
            return self
        return ComputeSeconds(
            gemm=self.gemm + count * other.gemm,
            attention=self.attention + count * other.attention,
            elementwise=self.elementwise + count * other.elementwise,
            cast=self.cast + count * other.cast,
            loss=self.loss + count * other.loss,
            recompute=self.recompute + count * other.recompute,
            forward=self.forward + count * other.forward,
            host=self.host + count * other.host,
        )


@dataclass(slots=True)
class OpSeconds:
    """Seconds of one operation on one rank for one micro-batch."""

    forward: Amount
    backward: Amount
    cast: Amount = 0.0
    """Conversion of operands to and from a narrow format, forward and backward."""
    recast: Amount = 0.0
    """The part of `cast` that a recomputed forward pass repeats."""


def kernel_seconds(flop: Amount, moved_bytes: Amount, flop_per_s: Amount, bytes_per_s: float) -> Amount:
    """Seconds of one kernel on one GPU: the slower of arithmetic and memory traffic, and its launch.

    Formula: max(F / R, B / W) + t_launch
    Args:
        flop: arithmetic of one rank, F [FLOP]
        moved_bytes: memory traffic of one rank, B [byte]
        flop_per_s: arithmetic rate reached, R [FLOP/s]
        bytes_per_s: memory rate reached, W [byte/s]
    Returns: seconds of one kernel [s]
    Source: Williams et al. 2009, doi:10.1145/1498765.1498785; launch: constants.LAUNCH_SECONDS

    >>> kernel_seconds(1e12, 1e9, 5e14, 2e12)
    0.002005
    """
    return maximum(flop / flop_per_s, moved_bytes / bytes_per_s) + LAUNCH_SECONDS


GROUP_TOKENS = 64.0
"""Tokens of one expert whose time a grouped product loses: its last tile is half full on average.
Source: definition; TILE / 2."""

SHUFFLES = ("moe.dispatch", "moe.combine")
"""Permutations of tokens by expert and back."""

SHUFFLE_FRACTION = 0.8
"""Share of the rate of streaming kernels that permutations reach, which gather rows.
Source: an assumption; rows of 4 KiB and more."""

SHUFFLE_PASSES: dict[DispatcherName, int] = {"alltoall": 2, "allgather": 1, "flex": 1}
"""Permutations on each side of an exchange: of all tokens by expert, and of those received by local expert; the flex
dispatcher does the first inside its exchange.
Source: NVIDIA/Megatron-LM@1d9edcf8c docs/discussions/deepseek-v3-gb200-optimization, 2.1.1."""

FUSED = ("moe.up", "moe.activation", "moe.bias", "moe.down")
"""Operations of experts that one kernel does in each pass: it streams no activation, and converts what the second
product reads forward and the first one backward. Source: NVIDIA-NeMo/Megatron-Bridge@51885cf13 perf_recipes
(use_transformer_engine_op_fuser, grouped MLP of cuDNN's CuTe DSL)."""


def product_seconds(op: Op, shape: ProductShape, rates: Rates, workload: Workload, degrees: Degrees) -> OpSeconds:
    """Seconds of the products of one operation with weights: its result, and the gradients of input and weights.

    Formula:
        forward: (m, n, k); backward: the mean of (m, k, n) and (k, n, m) for each gradient that is needed; each
        over x where a side is not aligned, over g m / (m + GROUP_TOKENS) where tokens are dealt to several experts,
        whose products run side by side, or one after another where they are not grouped;
        cast: (c m k + c' m n) / W, c and c' = cast_bytes, or gathered_cast_bytes for what tensor ranks gather, the
        input or, where they sum in parts, the gradient, but for what fused experts convert themselves; and what makes
        frozen matrices of 4 bits wide
    Args:
        workload: the workload, with x and g
    Returns: the seconds [s]
    Source: matrix_product_seconds; backward products: Kaplan et al. 2020, arXiv:2001.08361, section 2.1
    """
    m, n, k, copies = shape.rows, shape.columns, shape.inner, shape.copies
    products, constants = rates.of(op), workload.constants
    side = ALIGNED_SIDES.get(generation(workload.gpu), ALIGNED_SIDE)
    aligned = where(n % side == 0, 1.0, constants.misaligned_fraction)
    aligned = aligned * where(k % side == 0, 1.0, constants.misaligned_fraction)
    slowdown = 1 / aligned
    if op.holds_experts:
        slowdown = slowdown * where(copies > 1, (1 + GROUP_TOKENS / m) / constants.grouped_fraction, 1.0)
    if op.holds_experts and not workload.software.grouped_experts:
        slowdown, copies = slowdown * copies, 1.0
    launches = copies if op.holds_experts else 1
    forward = slowdown * matrix_product_seconds(m, n, k, products.plain, copies, launches)
    backward: Amount = 0.0
    if op.gradients:
        for_input, for_weights = shape.input_gradient, shape.weight_gradient
        inputs = matrix_product_seconds(
            for_input.rows, for_input.columns, for_input.inner, products.plain, copies, launches
        )
        weights = matrix_product_seconds(
            for_weights.rows, for_weights.columns, for_weights.inner, products.adding, copies, launches
        )
        backward = slowdown * (inputs + weights) / 2 * (op.backward_flop / op.flop)
    beside, beside_again = adapter_seconds(op, shape, rates, workload)
    forward, backward = forward + beside, backward + beside_again
    wide, wide_again = widening_seconds(op, shape, rates, workload)
    if not rates.is_narrow or op.keeps_precision:
        return OpSeconds(forward, backward, wide + wide_again, wide)
    input_bytes: Amount = cast_bytes(workload)
    gradient_bytes: Amount = input_bytes
    if op.split in (Split.TENSOR, Split.VOCABULARY) and not op.holds_experts:
        gathered = gathered_cast_bytes(workload, degrees)
        input_bytes, gradient_bytes = (input_bytes, gathered) if op.is_row_parallel else (gathered, gradient_bytes)
    numbers_per_s = rates.bytes_per_s / shape.copies
    inputs = m * k * input_bytes / numbers_per_s
    gradients = m * n * gradient_bytes / numbers_per_s if op.gradients else 0.0
    if workload.software.fused_experts:
        inputs, gradients = (0.0 if op.name == FUSED[-1] else inputs), (0.0 if op.name == FUSED[0] else gradients)
    return OpSeconds(forward, backward, inputs + gradients + wide + wide_again, inputs + wide)


def adapter_seconds(op: Op, shape: ProductShape, rates: Rates, workload: Workload) -> tuple[Amount, Amount]:
    """Seconds that an adapter streams beside one of its two products, forward and backward; none for other products.

    Formula:
        inner product, input of m k: d m k (2 e + 1) / W, d 1 with dropout, and its mask of one byte, else 0; backward
        the same, and 3 e m k / W to add to the input's gradient, where it has one
        outer product, result of m n: forward 5 e m n / W: scaled, and added to the matrix's; backward 2 e m n / W
    Args:
        workload: the workload, with e bytes an activation
    Returns: both, of one micro-batch [s]
    Source: NVIDIA/NeMo@v2.0.0 collections/llm/peft/lora.py and parallel_adapters.py, huggingface/peft 0.21
        tuners/lora/layer.py: result + scale * B(A(dropout(x))), each a kernel of its own; torch autograd sums gradients

    >>> from service.estimator.model.ledger import Weight
    >>> from service.estimator.samples import sample_workload
    >>> workload, shape = sample_workload(), ProductShape(rows=8, columns=32, inner=64, copies=1)
    >>> op = Op(name="o", kind="gemm", split=Split.WHOLE, weights=(Weight(64, 32),))
    >>> adapter_seconds(op, shape, rates_of(workload), workload)
    (0.0, 0.0)
    """
    if not any(weight.role == "adapter" for weight in op.weights):
        return 0.0, 0.0
    element_bytes = workload.precision.element_bytes
    if not op.name.endswith(INNER_HALF):
        result = element_bytes * shape.rows * shape.columns * shape.copies / rates.bytes_per_s
        return 5 * result, 2 * result
    numbers = shape.rows * shape.inner * shape.copies
    dropped = (2 * element_bytes + 1) * numbers / rates.bytes_per_s if workload.method.dropout_fraction else 0.0
    return dropped, dropped + 3 * element_bytes * numbers / rates.bytes_per_s if op.gradients > 1 else 0.0


BRANCHING_SLOWDOWN = 1.68
"""Seconds of bitsandbytes' kernel with branches over those of the one that looks values up.
Source: bitsandbytes-foundation/bitsandbytes#1747, 1.36 to 2.07 times on P100, A100 and H100; their geometric mean."""

LOOKED_UP_SINCE = "0.48"
"""bitsandbytes release from which its kernel looks values up. Source: bitsandbytes-foundation/bitsandbytes#1747."""

_UNSLOWED = ("Ada",)
"""Generations whose memory is slow enough for the kernel with branches.
Source: bitsandbytes-foundation/bitsandbytes#1747 (L4, RTX 4090: as fast before for large matrices)."""


def widening_seconds(op: Op, shape: ProductShape, rates: Rates, workload: Workload) -> tuple[Amount, Amount]:
    """Seconds that make the frozen matrices of one operation wide, before its forward and its backward product.

    Formula:
        n k q / W each, q = Quantization.traffic_bytes; times BRANCHING_SLOWDOWN with bitsandbytes before 0.48; none
        backward where no gradient passes through, or autograd keeps the wide weights
    Returns: both, of one micro-batch [s]
    Source: bitsandbytes@0.48 autograd/_functions.py MatMul4Bit (both passes); Quantization.traffic_bytes

    >>> from service.estimator.model.ledger import Weight
    >>> from service.estimator.samples import sample_workload
    >>> workload, shape = sample_workload(), ProductShape(rows=8, columns=32, inner=64, copies=1)
    >>> op = Op(name="o", kind="gemm", split=Split.WHOLE, weights=(Weight(64, 32, trained=False),))
    >>> widening_seconds(op, shape, rates_of(workload), workload)
    (0.0, 0.0)
    """
    quantization = quantization_of(workload.method)
    roles = ("matrix", "head") if quantizes_head(workload) else ("matrix",)
    if quantization is None or not any(weight.role in roles and not weight.trained for weight in op.weights):
        return 0.0, 0.0
    is_branching = not (quantization.keeps_wide or at_least(workload.versions.bitsandbytes, LOOKED_UP_SINCE))
    slowdown = BRANCHING_SLOWDOWN if is_branching and generation(workload.gpu) not in _UNSLOWED else 1.0
    numbers = shape.columns * shape.inner * shape.copies
    once = slowdown * numbers * quantization.traffic_bytes / rates.bytes_per_s
    return once, 0.0 if quantization.keeps_wide or not op.gradients else once


def attention_seconds(
    op: Op, workload: Workload, divisor: Amount, scale: Amount, rates: Rates, pieces: Amount = 1
) -> OpSeconds:
    """Seconds of attention, or of the scan of a recurrent layer, on one rank.

    Formula:
        fused: roofline at R f, f by keys and queries; backward: twice the FLOP and what the kernel repeats; of a ring
        also the sums of its pieces
        eager: FLOP over the rate of its products, and its traffic
    Args:
        divisor: ranks that share its work [1]
        scale: sequences of a micro-batch on one context rank [1]
        pieces: pieces of a ring [1]
    Returns: the seconds [s]
    Source: attention_fraction; merging_seconds; Korthikanti et al. 2022, arXiv:2205.05198, section 4.1 (eager)
    """
    flop, moved = op.flop / divisor * scale, op.moved_bytes / divisor * scale
    gradients = (op.backward_flop + op.kernel_rerun_flop) / divisor * scale
    if workload.kernel == "eager" and op.is_core:
        traffic_seconds = moved / rates.bytes_per_s
        return OpSeconds(
            flop / rates.eager_flop_per_s + traffic_seconds,
            gradients / rates.eager_flop_per_s + op.gradients * traffic_seconds,
        )
    shares = _shares(op, workload, divisor, scale, rates, pieces)
    forward, backward = (rates.attention_flop_per_s * share for share in shares)
    merges = merging_seconds(moved, pieces, rates.bytes_per_s) if op.is_core else 0.0
    forward_seconds = kernel_seconds(flop, moved, forward, rates.bytes_per_s) + merges
    return OpSeconds(
        forward_seconds,
        kernel_seconds(gradients, op.gradients * moved, backward, rates.bytes_per_s) + 2 * merges
        if op.gradients
        else 0.0,
    )


def piece_fraction(pieces: Amount) -> Amount:
    """Keys that a query sees in one piece of a ring over those that it sees in all.

    Each rank holds two of 2 c blocks of a sequence, so that a causal mask gives every piece as many pairs: the first
    has s / 2 c keys for a query on average, all others s / 2 c or s / c.

    Formula: 4 / (3 c + 1), the harmonic mean
    Args:
        pieces: pieces of the ring, c [1]
    Returns: share of the keys [1]
    Source:
        Liu et al. 2023, arXiv:2310.01889; NVIDIA/TransformerEngine@v2.11 context_parallel.py AttnFuncWithCPAndKVP2P

    >>> piece_fraction(1), piece_fraction(2)
    (1.0, 0.5714285714285714)
    """
    return 4 / (3 * pieces + 1)


def merging_seconds(moved_bytes: Amount, pieces: Amount, bytes_per_s: float) -> Amount:
    """Seconds that a ring adds the result of each piece to those before it: of the forward pass, of each gradient.

    Formula:
        (c - 1) B / 2 W: outputs, or of the four tensors that a pass moves twice the three gradients, read, and added to
        what is read and written back
    Args:
        moved_bytes: what one pass without a ring moves, B [byte]
        pieces: pieces of the ring, c [1]
        bytes_per_s: rate of memory traffic, W [byte/s]
    Returns: seconds of the forward pass; the backward pass takes twice as long [s]
    Source: NVIDIA/TransformerEngine@v2.11 context_parallel.py (flash_attn_fwd_out_correction; dq.add_, dk.add_)

    >>> merging_seconds(4e9, 1, 1e12), merging_seconds(4e9, 2, 1e12)
    (0.0, 0.002)
    """
    return (pieces - 1) * moved_bytes / 2 / bytes_per_s


def _shares(
    op: Op, workload: Workload, divisor: Amount, scale: Amount, rates: Rates, pieces: Amount
) -> tuple[Amount, Amount]:
    """Shares of the peak, forward and backward. Attention's depend on its sizes; a scan's are those of long ones."""
    if not op.is_core:
        return rates.attention.forward_fraction, rates.attention.backward_fraction
    tokens = workload.recipe.sequence_length
    queries = workload.model.num_attention_heads * tokens / divisor * scale
    keys = op.flop / (2 * tokens * op.score_width) * piece_fraction(pieces)
    forward, backward = (
        gain * attention_fraction(rates.attention, keys, queries, backward=bool(place))
        for place, gain in enumerate(rates.attention_gain_fraction)
    )
    return forward, backward


def op_seconds(
    op: Op, workload: Workload, degrees: Degrees, split: tuple[Amount, ...], rates: Rates, method: ContextMethod
) -> OpSeconds:
    """Seconds of one operation on one rank for one micro-batch.

    Formula:
        products and attention by their own functions; what only streams: its bytes over W and a launch, once more for
        each gradient; permutations take SHUFFLE_PASSES of that over SHUFFLE_FRACTION; nothing for what fused experts
        do in their products
    Args:
        split: divisor of each split [1]
        method: how context ranks exchange keys and values
    Returns: forward and backward seconds [s]
    Source: product_seconds, attention_seconds, kernel_seconds
    """
    if op.kind == "gemm":
        return product_seconds(op, product_shape(op, workload.model, degrees, split), rates, workload, degrees)
    scale, divisor = degrees.micro_batch / degrees.context, split[op.split]
    if op.kind == "attention":
        pieces = degrees.context if method == "ring" else 1
        return attention_seconds(op, workload, divisor, scale, rates, pieces)
    if workload.software.fused_experts and op.name in FUSED:
        return OpSeconds(0.0, 0.0)
    moved = (op.moved_bytes / divisor + op.whole_bytes) * scale / rates.bytes_per_s
    if op.name in SHUFFLES:
        moved = moved * SHUFFLE_PASSES[workload.software.dispatcher or "alltoall"] / SHUFFLE_FRACTION
    moved = moved + LAUNCH_SECONDS
    return OpSeconds(moved, op.gradients * moved)


def ops_compute(ops: Ops, workload: Workload, degrees: Degrees, rates: Rates, method: ContextMethod) -> ComputeSeconds:
    """Seconds that one rank computes for some operations on one micro-batch, forward and backward."""
    split = divisors(degrees, workload.model, workload.vocabulary_multiple)
    sums: dict[OpKind, Amount] = {"gemm": 0.0, "attention": 0.0, "elementwise": 0.0}
    recompute: Amount = 0.0
    forward: Amount = 0.0
    cast: Amount = 0.0
    for op in ops:
        if not (op.flop or op.moved_bytes):
            continue
        one = op_seconds(op, workload, degrees, split, rates, method)
        sums[op.kind] = sums[op.kind] + one.forward + one.backward
        cast = cast + one.cast
        forward = forward + one.forward
        if is_rerun(op, workload.recompute):
            recompute = recompute + (one.forward + one.recast) * (
                rerun_flop(op, workload.recompute) / op.flop if op.flop else 1.0
            )
    return ComputeSeconds(
        gemm=sums["gemm"],
        attention=sums["attention"],
        elementwise=sums["elementwise"],
        cast=cast,
        recompute=recompute,
        forward=forward,
    )


HOST_LINK_FRACTION = 0.88
"""Share of the host link that copies reach: 55.4 of 63 GB/s to an H200 over PCIe 5.
Source: stas00/ml-engineering@744d01e network README, nvbandwidth, 2026-08."""


def accumulation_seconds(workload: Workload, degrees: Degrees, parameters: RankParameters) -> Amount:
    """Seconds that one rank takes to add a micro-batch's gradients to those before it.

    Formula:
        N (2 e + 2 g) / W: written and read in the compute format, read and written in the accumulated one; none where
        the products of the weights' gradients add to them by themselves; where weights are sharded, the copies of
        Overlap.sharded_copy_bytes instead
    Args:
        workload: the workload, with e bytes an activation and g an accumulated gradient
        parameters: parameters of the rank, N of them trained
    Returns: seconds of one micro-batch [s]
    Source: torch AccumulateGrad; NVIDIA/Megatron-LM@83b1e42f gradient accumulation fusion

    >>> from service.estimator.samples import sample_degrees, sample_workload, sample_rank_load
    >>> accumulation_seconds(sample_workload(), sample_degrees(), sample_rank_load().parameters)
    0.0
    """
    whole = 2 * (workload.precision.element_bytes + min(4.0, workload.state.gradient_bytes))
    each = where(
        degrees.zero_stage == WEIGHTS,
        workload.implementation.overlap.sharded_copy_bytes,
        0.0 if workload.software.gradient_fusion else whole,
    )
    trained = parameters.dense_trained + parameters.expert_trained
    return trained * each / streaming_bytes_per_s(workload.gpu, workload.constants.memory_fraction)
