"""How the contract describes a list: one row, a page of rows, and the query that filters and sorts it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.answers.names import COMPONENT, EACH
from service.tabular.columns import Column
from service.tabular.lists import DEFAULT_ROWS, MOST_ROWS
from service.validation.forms import ReadElsewhere, described_as, object_schema


@dataclass(frozen=True)
class _Described(ReadElsewhere):
    """A schema that is worked out when the contract is written."""

    schema: Callable[[GetJsonSchemaHandler], JsonSchemaValue] = field(hash=False)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.schema(handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTypes:
    """Types of a list's answers and of its query."""

    singular: str
    """Name of one row in schemas and operations."""
    row_meaning: str
    """What one row is."""
    columns: Sequence[Column]
    """Columns, the key first."""
    sort: str | None = None
    """Order where the query gives none; that of the key where absent."""

    @property
    def row(self) -> Any:
        """One row."""
        return Annotated[Any, _Described(lambda _: self._row())]

    @property
    def page(self) -> Any:
        """Some rows, and where the next page begins."""
        return Annotated[Any, _Described(lambda _: self._page())]

    def detail(self, name: str, meaning: str, more: type) -> Any:
        """One row with further fields, which a dataclass describes, as the component of a name."""
        return Annotated[Any, _Described(lambda handler: self._detail(name, meaning, more, handler))]

    @property
    def query(self) -> Any:
        """Filters, order, limit and cursor."""
        return Annotated[Any, _Described(lambda _: self._query())]

    @property
    def parameters(self) -> Any:
        """The same, each as a parameter of its own."""
        return Annotated[Any, _Described(lambda _: self._query() | {EACH: True})]

    def _row(self) -> JsonSchemaValue:
        fields = {column.name: dict(column.schema) for column in self.columns}
        return {
            COMPONENT: f"{self.singular}Row",
            **object_schema(f"{self.row_meaning}; null means not known, never zero.", fields, required=list(fields)),
        }

    def _detail(self, name: str, meaning: str, more: type, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        further = handler.resolve_ref_schema(described_as(more, handler))["properties"]
        fields = {column.name: dict(column.schema) for column in self.columns} | further
        return {COMPONENT: name, **object_schema(meaning, fields, required=list(fields))}

    def _page(self) -> JsonSchemaValue:
        items = {"type": "array", "description": "The rows.", "maxItems": MOST_ROWS, "items": self._row()}
        meaning = "Where the next page begins, for `cursor`; null after the last row."
        fields = {"items": items, "next_cursor": {"type": ["string", "null"], "description": meaning}}
        return {
            COMPONENT: f"{self.singular}Page",
            **object_schema("Some rows of a list.", fields, required=list(fields)),
        }

    def _query(self) -> JsonSchemaValue:
        key = self.columns[0].name
        order = (
            "Columns to sort by, the first one first, `-` before one that descends; what is not known comes last, and "
            f"rows that agree in all of them are in the order of {key}; {self.sort or key} where absent."
        )
        rows = f"Rows at most: of a page, {DEFAULT_ROWS} where absent; of a table, all of them where absent."
        cursor = "next_cursor of the page before, with the same sort; the first page where absent."
        fields = {
            **{column.name: _filter(column) for column in self.columns},
            "sort": {"type": "array", "items": {"type": "string"}, "description": order},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "description": rows},
            "cursor": {"type": "string", "minLength": 1, "description": cursor},
        }
        return {
            COMPONENT: f"{self.singular}Query",
            **object_schema(f"Which rows, and in which order. {FILTERS}", fields),
        }


FILTERS = (
    "Each column is a filter of its own name: given twice, either value will do; empty, rows of which it is not known; "
    "a GPU by any of its names."
)


def _filter(column: Column) -> JsonSchemaValue:
    """Values of one column; several by the key repeated."""
    kind = next((name for name in ("integer", "number", "boolean") if name in column.types), "string")
    values = {"type": "array", "items": {"type": kind}, "description": f"Values of type {kind}."}
    return {COMPONENT: f"{kind.capitalize()}Filter", **values}
