"""DeepSpeed's ZeRO-3 estimator: model states on each GPU and in host memory, by what is offloaded."""

from math import ceil

from service.estimator.model.counts import parameter_counts
from service.estimator.model.ledger import Ledger, Op, Split
from service.estimator.other_tools.tool import STATES, WEIGHTS, MethodVariant, Term, ToolAnswer
from service.estimator.resolve import ResolvedQuestion

BUFFER_FACTOR = 1.5
"""Factor on host memory for buffers. Source: deepspeedai/DeepSpeed@edaa722, default additional_buffer_factor."""


def largest_module(ledger: Ledger) -> int:
    """Parameters of the largest single module, which the tool calls a layer: a table, a matrix, all experts of a layer.

    Formula: max(rows x columns of each matrix with its bias, and of each table; the routed experts of a layer together)
    Returns: parameters [1]
    Source:
        deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage3.py over the classes of transformers 5.23.0, which
        keep the experts of a layer in one module
    Ignores:
        classes that keep queries, keys and values, or both inputs of an MLP, in one module: a table is mostly larger

    >>> from service.estimator.samples import sample_workload
    >>> largest_module(sample_workload().ledger) == 128256 * 4096
    True
    """
    groups = (ledger.embedding, *ledger.kinds, ledger.head)
    return max(max(_experts(ops), *(_largest_matrix(op) for op in ops)) for ops in groups)


def _experts(ops: tuple[Op, ...]) -> int:
    return sum(weight.parameters for op in ops for weight in op.weights if weight.split is Split.EXPERT)


def _largest_matrix(op: Op) -> int:
    """Parameters of the largest matrix or table of an operation, with its bias; fused matrices count one by one."""
    biased = {weight.columns for weight in op.weights if weight.role == "vector"}
    return max(
        (
            weight.columns
            * (weight.rows + int(bool(weight.matrices) and weight.columns in biased))
            // max(1, len(weight.matrices))
            for weight in op.weights
            if weight.split is not Split.EXPERT
        ),
        default=0,
    )


def offloaded(total: int, largest: int, gpus_per_node: int, nodes: int) -> tuple[MethodVariant, ...]:
    """Every row of the tool's table.

    A GPU holds the largest module in fp32, and its shard of 18, 2 or 0 bytes for each parameter. Host memory holds the
    offloaded states, or the whole weights that each process loads before they are sharded.

    Source:
        deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/stage3.py

    >>> [(row.gpu_bytes, row.cpu_bytes) for row in offloaded(1000, 100, 8, 1)][-2:]
    [(2650, 4800), (2650, 48000)]
    """
    rows = []
    for on_cpu, sharded_bytes in ((("cpu", "cpu"), 0), (("none", "cpu"), 2), (("none", "none"), 18)):
        for is_initialised_sharded in (True, False):
            share, loaded = (18 - sharded_bytes) / nodes, 4.0 * gpus_per_node
            if sharded_bytes == 18:
                host = loaded * (largest if is_initialised_sharded else total)
            else:
                host = total * (share if is_initialised_sharded else max(loaded, share))
            rows.append(
                MethodVariant(
                    name=f"offload_param={on_cpu[0]}, offload_optimizer={on_cpu[1]}, "
                    f"zero_init={int(is_initialised_sharded)}",
                    gpu_bytes=4 * largest + sharded_bytes * total // (gpus_per_node * nodes),
                    cpu_bytes=int(host * BUFFER_FACTOR),
                )
            )
    return tuple(rows)


def answer(resolved: ResolvedQuestion) -> ToolAnswer:
    """The tool's own terms and totals for a question."""
    cluster, ledger = resolved.question.cluster, resolved.workload.ledger
    total, largest = parameter_counts(resolved.question.model, ledger).total, largest_module(ledger)
    nodes = ceil(cluster.gpus / cluster.gpus_per_node)
    is_offloaded = resolved.question.layout.offload == "optimizer"
    sharded_bytes, kinds = (2, WEIGHTS) if is_offloaded else (18, STATES)
    states = Term("parameters, optimizer states and gradients", float(sharded_bytes * total // cluster.gpus), kinds)
    module = Term("largest layer", 4.0 * largest, ("gathered_weights",))
    return ToolAnswer(terms=(states, module), variants=offloaded(total, largest, cluster.gpus_per_node, nodes))
