"""Names carry their units, and none of the words that hide one.

A float or an Amount ends in a suffix of the units table. What has no unit is a count (listed here,
with the classes that hold nothing else) or a table of one unit, which its class says (`StepSeconds`).
"""

import ast
import re
from pathlib import Path

from service.units import DIMENSIONS
from tests.house import source

FILES = source.python_files("service")
MEASURED = frozenset({"float", "Amount", "Interval"})
BANNED = re.compile(r"(?:^|_)(?:flops|tflops|mem|util|utils|helper|helpers|manager|misc)(?:_|$)|(?:^|_)num_|^time$")
TABLE_OF_ONE_UNIT = re.compile(r"(Bytes|Seconds|Flop|Tokens|Usd)$")

HUGGING_FACE = re.compile(
    r"num_(hidden_layers|attention_heads|key_value_heads|experts|experts_per_tok|nextn_predict_layers"
    r"|mem_blocks)|linear_num_(key|value)_heads"
)
"""Fields of config.json that users paste, the only names that may hold num_."""

CLASSES_OF_COUNTS = frozenset({"Degrees", "Group", "ProductShape", "RankParameters", "ShardCounts", "Spacing", "Stage"})
"""How many, or which: every field is a plain number."""

COUNTS = frozenset({
    "activation_layers", "again_layers", "along_or_same", "bubble_micro_batches", "bucket_copies",
    "calls", "cast_numbers", "ceil_div", "columns", "copies", "copies_on_rank", "count",
    "crossing_share", "dense", "divisors", "doublings", "embedding_table", "expert", "expert_data", "expert_shards",
    "fill_numbers", "flat_parameters", "floor_div", "full_copies", "gathered_ends",
    "gpus", "half_copies", "in_flight", "inner",
    "largest_layer", "largest_table", "largest_trained_end", "largest_trained_layer", "late_cast_numbers",
    "layer_branches", "layers", "local_ranks", "maximum", "measured_scale", "micro_batches", "micro_batches_in_flight",
    "minimum", "most_parameters_served", "one_group_parameters",
    "network_scale", "optimal_parameters", "own_scale", "padded_vocabulary",
    "number_or_column", "passes", "piece_copies", "product_scale", "rank_logits", "ranks", "reach", "recomputed_layers",
    "reduce_bucket_numbers", "reduced_group",
    "repeated_forwards", "rows", "rule_parameters",
    "scale", "shape", "shards", "slowness", "sparse_launches", "sparse_layers",
    "spread_scale", "square_root", "stack_scale", "stage_tensors",
    "stride", "summed", "summed_by_shape", "take", "trained_layers", "trained_numbers", "undivided_share",
    "warm_flights", "warm_passes", "where", "where_needed", "wide_numbers",
})  # fmt: skip
"""Counts of things and plain arithmetic."""

MULTIPLES = frozenset({
    "expert_capacity_factor", "expert_imbalance", "expert_load", "network_oversubscription", "pue",
    "tokens_per_parameter",
})  # fmt: skip
"""How many times an even or usual share; names that users know."""

IN_ITS_OWN_UNIT = frozenset({"evaluate", "predict", "predicted", "predicted_value", "quantile"})
"""What is asked of one measurement, and told in the unit of that measurement."""

UNIT_STANDS_BESIDE = {
    "AccuracyPoint": "its column unit says it: seconds of a step, or bytes of a peak",
    "Case": "its probe says it: FLOP, or bytes",
    "Charge": "its formula says it",
    "Compared": "its quantity says it",
    "Comparison": "its quantity says it: bytes of memory, or seconds of a step",
    "Conventions": "FLOP of one trained token, keyed by the name of the convention",
    "Deepened": "its quantity says it: bytes, or seconds of a step",
    "Dimension": "scales between units",
    "Measured": "its quantity says it",
    "MeasuredValue": "the quantity of the measurement that holds it says it",
    "Measurement": "its quantity says it",
    "Expected": "its quantity says it",
    "Explanation": "`unit` says it",
    "Fitted": "its field says it",
    "Interval": "its field carries the unit",
    "LossFit": "the equation of the loss says it",
    "Evaluation": "its quantity says it: bytes of memory, or seconds of a step",
    "MeasuredRow": "its column carries the unit",
    "Metric": "its path carries the unit",
    "Shown": "its text says it",
    "Working": "`unit` says it",
}
"""Classes of any number, whose unit is said by something else."""


def _has_unit(name: str) -> bool:
    return any(name == suffix or name.endswith(f"_{suffix}") for suffix in DIMENSIONS)


def _measured(annotation: ast.expr | None) -> bool:
    return bool(source.type_names(annotation) & MEASURED)


def _is_measure(annotation: ast.expr | None) -> bool:
    names = source.type_names(annotation) - {"None"}
    return bool(names) and names <= MEASURED - {"Interval"}


@source.each_of(FILES)
def test_measured_fields_carry_their_unit(path: Path) -> None:
    bare = [
        f"{kind.name}.{name}"
        for kind in source.public_classes(path)
        if kind.name not in CLASSES_OF_COUNTS and kind.name not in UNIT_STANDS_BESIDE
        for name, annotation in source.fields_of(kind).items()
        if _measured(annotation) and not _has_unit(name)
        if name not in COUNTS | MULTIPLES and not TABLE_OF_ONE_UNIT.search(kind.name)
    ]
    assert not bare, f"{bare} carry no unit; end them in one of {sorted(DIMENSIONS)}"


@source.each_of(FILES)
def test_measuring_functions_carry_their_unit(path: Path) -> None:
    tables = {
        method
        for kind in source.public_classes(path)
        if TABLE_OF_ONE_UNIT.search(kind.name) or kind.name in CLASSES_OF_COUNTS or kind.name in UNIT_STANDS_BESIDE
        for method in source.functions(kind)
    }
    bare = [
        function.name
        for function in source.functions_of(path)
        if not function.name.startswith("_") and function not in tables
        if _is_measure(function.returns) and not _has_unit(function.name)
        if function.name not in COUNTS | IN_ITS_OWN_UNIT
    ]
    assert not bare, f"{bare} carry no unit; end them in one of {sorted(DIMENSIONS)}"


@source.each_of(FILES)
def test_no_name_hides_its_unit_or_its_purpose(path: Path) -> None:
    defined = {path.stem} | {
        name
        for node in source.nodes_of(path)
        for name in (
            [node.name, *(source.arguments_of(node) if not isinstance(node, ast.ClassDef) else source.fields_of(node))]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else [node.id]
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            else []
        )
    }
    banned = sorted(name for name in defined if BANNED.search(name.lower()) and not HUGGING_FACE.fullmatch(name))
    assert not banned, f"banned: {banned}"


def test_exceptions_are_still_needed() -> None:
    known = {
        name
        for path in FILES
        for node in source.nodes_of(path)
        for name in (
            [node.name, *(source.fields_of(node) if isinstance(node, ast.ClassDef) else [])]
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else []
        )
    }
    gone = (COUNTS | MULTIPLES | IN_ITS_OWN_UNIT | CLASSES_OF_COUNTS | UNIT_STANDS_BESIDE.keys()) - known
    assert not gone, f"remove {sorted(gone)} from the lists above: nothing in {source.SERVICE.name}/ has that name"
