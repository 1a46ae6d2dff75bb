"""Settings that published tables leave out, from the public recipe or test that each row ran."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from service.calibration.tables import FormName, MeasuredRow, shipped_records
from service.evaluation.frameworks import Draft, Flags, put_layers, table_of

TABLE = "recipes.toml"

IN_RECIPES = "unknown(see perf_recipes)"
"""Recompute cell that refers to the framework's own recipes."""

UNSTATED = ("", "not told", "unknown", "see recipe")
"""Recompute cells that state nothing."""

PARTS = ("model", "recipe", "layout", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecipe:
    """Settings of the runs that its conditions match."""

    form: Literal["", FormName] = "memory"
    """Kind of table whose rows it describes; every kind if empty."""
    where: Mapping[str, str]
    """Regular expressions by column: each is found in the row's cell."""
    cells: Mapping[str, str] = field(default_factory=dict)
    """Cells of the row, where they are empty."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of Megatron-LM that give the layers."""
    model: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] = field(default_factory=dict)
    stack: Mapping[str, Any] = field(default_factory=dict)
    unmodelled: tuple[str, ...] = ()
    """What the recipe sets and no field expresses."""
    source: str
    """Repository, path and commit."""

    def holds(self, row: MeasuredRow) -> bool:
        """Whether a row ran it."""
        return self.form in ("", row.form) and all(
            re.search(pattern, row.text(column)) for column, pattern in self.where.items()
        )


_CONTAINER = re.compile(r"(?P<origin>NeMo container |/nemo:)(?P<release>\d\d(?:\.\d\d)+)")
_OTHER_RELEASE = re.compile(r"recompute.* at HEAD", re.DOTALL)
WHOLE_GRAPHS = ("layer", "step")
"""Graphs that leave nothing of a layer to be launched by itself."""

DEGREES = ("tp", "pp", "cp", "ep")
"""Columns of a layout that a recipe fixes; replicas follow from the GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedRecipe:
    """Settings of one model on one GPU from a release on."""

    release: str
    """Container of NeMo."""
    commit: str
    model: str
    gpu: str
    precision: str
    """Names of formats, with bars between them."""
    variant: str
    """Name of the recipe among several for one model, GPU and format."""
    tp: str
    pp: str
    cp: str
    ep: str
    gbs: str
    dispatcher: Literal["", "alltoall", "deepep", "hybridep"]
    """Empty for dense models."""
    expert_overlap: Literal["", "none", "1f1b"]
    cuda_graphs: str
    """None, the parts of a layer that graphs capture, every whole layer, or the whole step."""
    recompute: str
    """None, modules of a layer, or a number of whole layers."""
    offloaded_layers: str
    """Layers whose activations go to host memory."""
    fused_experts: bool
    """Both products of experts and the activation between them are one kernel."""
    fp8_attention: bool

    @property
    def cells(self) -> dict[str, str]:
        """The recompute columns of a table.

        >>> released_recipes()[0].cells
        {'recompute': 'none'}
        """
        if self.recompute == "none":
            return {"recompute": "none"}
        if self.recompute.startswith("block"):
            return {"recompute": "full", "recompute_detail": self.recompute}
        return {"recompute": "selective", "recompute_detail": self.recompute.replace("+", ",")}

    @property
    def stack(self) -> dict[str, Any]:
        """Fields of the training software."""
        given = {"cuda_graphs": self.cuda_graphs != "none", "fp8_attention": self.fp8_attention}
        return {**given, **self.exchange, "fused_experts": self.fused_experts} if self.dispatcher else given

    @property
    def exchange(self) -> dict[str, Any]:
        """Those of them that a release sets for experts in every layout."""
        return {
            "cuda_graphs": self.cuda_graphs != "none",
            "partial_graphs": self.cuda_graphs not in ("none", *WHOLE_GRAPHS),
            "dispatcher": "alltoall" if self.dispatcher == "alltoall" else "flex",
            "expert_overlap": self.expert_overlap != "none",
        }

    @property
    def unmodelled(self) -> list[str]:
        """What no field expresses."""
        return ["only some layers send activations to host memory"] if self.offloaded_layers else []


@cache
def released_recipes() -> tuple[ReleasedRecipe, ...]:
    """Every setting of Megatron-Bridge's performance recipes, oldest first, one row where a release changed it."""
    # Source: NVIDIA-NeMo/Megatron-Bridge at the commit of each row: scripts/performance/run_script.py and
    # configs/*/*.yaml (25.09), configs/*/*workload_base_configs.py (until 26.06.01), src/megatron/bridge/perf_recipes
    # (26.08), whose open recompute modules Megatron-Core took for core_attn until #6003;
    # training/flex_dispatcher_backend.py: all-to-all where none is named, and where DeepEP has no such GPU.
    return shipped_records(ReleasedRecipe, "bridge_recipes")


def _released(container: str) -> tuple[int, ...]:
    return tuple(map(int, container.split(".")))


def _format_of(row: MeasuredRow) -> str:
    """A row's format by the names of recipes; the cell of other fp8 recipes means two, by generation."""
    cell = row.text("precision")
    return ("mxfp8" if "B" in row.text("gpu") else "fp8-subchannel") if cell == "fp8_subchannel/mx" else cell


def released_recipe_of(row: MeasuredRow) -> ReleasedRecipe | None:
    """The recipe with a row's degrees: of its release, else of the nearest; of several the one with its batch."""
    container = _CONTAINER.search(row.text("framework_version"))
    if container is None:
        return None
    fixed = DEGREES if container["origin"].startswith("NeMo") else (*DEGREES, "gbs")  # cards run other recipes, too
    degrees = {name: row.text(name) or "1" for name in fixed}
    fitting = [
        one
        for one in _recipes_of(row)
        if _format_of(row) in one.precision.split("|")
        and all(getattr(one, name) == degree for name, degree in degrees.items())
    ]
    return _nearest(row, container["release"], fitting)


def nearest_recipe_of(row: MeasuredRow) -> ReleasedRecipe | None:
    """The recipe of a row's model, GPU and release, or of the nearest one, whatever its degrees."""
    container = _CONTAINER.search(row.text("framework_version"))
    return container and _nearest(row, container["release"], _recipes_of(row))


def _recipes_of(row: MeasuredRow) -> list[ReleasedRecipe]:
    asked = row.text("model").lower(), row.text("gpu").split("-")[0]
    return [one for one in released_recipes() if (one.model, one.gpu) == asked]


def _nearest(row: MeasuredRow, release: str, fitting: list[ReleasedRecipe]) -> ReleasedRecipe | None:
    earlier = [one for one in fitting if _released(one.release) <= _released(release)]
    nearest = reversed(earlier) if earlier else iter(fitting)
    return max(nearest, key=lambda one: one.gbs == row.text("gbs"), default=None)


@cache
def run_recipes() -> tuple[RunRecipe, ...]:
    """Every recipe; a row takes the settings of all that match it, later ones over earlier ones."""
    rows = table_of(TABLE)["run"]
    return tuple(RunRecipe(**{**row, "unmodelled": tuple(row.get("unmodelled", ()))}) for row in rows)


def completed(row: MeasuredRow) -> MeasuredRow:
    """A row with the cells that its recipe states, which are missing no more.

    >>> row = completed(MeasuredRow(1, {"source_key": "mbridge_skills", "model": "nemotron-3-nano", "pp": "2"}))
    >>> row.count("layers"), row.count("pp")
    (52, 2)
    """
    stated = {column: cell for run in run_recipes() if run.holds(row) for column, cell in run.cells.items()}
    if released := released_recipe_of(row):
        stated.update(released.cells)
    if not stated:
        return row
    is_open = row.text("recompute") in (*UNSTATED, IN_RECIPES) or _OTHER_RELEASE.search(row.text("notes"))
    known = _without(row.cells, "recompute", "recompute_detail") if is_open else row.cells
    cells = {**stated, **known}
    missing = " ".join(column for column in row.text("config_missing").split() if column not in stated)
    return replace(row, cells={**cells, "config_missing": missing} if missing else _without(cells, "config_missing"))


def _without(cells: Mapping[str, str], *columns: str) -> dict[str, str]:
    return {name: cell for name, cell in cells.items() if name not in columns}


def options_of_recipe(row: MeasuredRow) -> Flags:
    """Options that give the layers of a row's model."""
    return {name: value for run in run_recipes() if run.holds(row) for name, value in run.options.items()}


def put_run_recipe(row: MeasuredRow, draft: Draft) -> None:
    """Set the fields that a row's recipe states, over those of its framework."""
    put_layers(options_of_recipe(row), draft)
    if released := released_recipe_of(row):
        draft.stack.update(released.stack)
        draft.unmodelled.extend(f"recipe: {detail}" for detail in released.unmodelled)
    elif draft.model.get("num_experts") and (nearest := nearest_recipe_of(row)):
        draft.stack.update(nearest.exchange)
    for run in run_recipes():
        if run.holds(row):
            for part in PARTS:
                getattr(draft, part).update(getattr(run, part))
            draft.unmodelled.extend(f"recipe: {detail}" for detail in run.unmodelled)
