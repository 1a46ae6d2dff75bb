"""A migration beside processes of the release before: it may add, and removes later.

A revision that drops, renames or narrows something is a contraction and says so, `contracts = "NNNN"`: the revision
since whose release nothing reads or writes it any more. It adds nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alembic.operations import ops
from alembic.operations.base import AbstractOperations
from alembic.script import Script
from sqlalchemy import TextClause

WORDS = ("drop ", "rename ", "set not null")
"""What takes away in SQL that is spelled out."""


def faults(script: Script, operations: list[Any]) -> list[str]:
    """What is wrong with a revision."""
    taken, added = [one for one in map(_taken, operations) if one], [one for one in map(_added, operations) if one]
    contracts = getattr(script.module, "contracts", None)
    found = [f"{script.revision} {one}, so processes that know it fail; a later release contracts" for one in taken]
    if contracts is not None:
        found = [] if taken else [f"{script.revision} contracts nothing"]
        if not str(contracts) < str(script.revision):
            found.append(f"{script.revision} contracts what {contracts} made needless, which is no earlier revision")
        found += [f"{script.revision} {one} and contracts; make two revisions of it" for one in added]
    return found + [f"{script.revision} {one}" for one in map(_unwritable, operations) if one]


@contextmanager
def recorded(into: list[Any]) -> Iterator[None]:
    """While this goes on, whatever operation a revision runs is written down."""
    invoke = AbstractOperations.invoke

    def told(self: AbstractOperations, operation: Any) -> Any:
        into.append(operation)
        return invoke(self, operation)

    AbstractOperations.invoke = told  # type: ignore[method-assign]
    try:
        yield
    finally:
        AbstractOperations.invoke = invoke  # type: ignore[method-assign]


def _taken(operation: Any) -> str:
    """What an operation takes from the release before."""
    if isinstance(operation, ops.DropTableOp | ops.RenameTableOp):
        return f"takes table {operation.table_name} away"
    if isinstance(operation, ops.DropColumnOp):
        return f"takes column {operation.table_name}.{operation.column_name} away"
    if isinstance(operation, ops.AlterColumnOp) and (
        operation.modify_name is not None
        or operation.modify_nullable is False
        or operation.modify_type is not None
        or operation.modify_server_default is None
    ):
        return f"narrows column {operation.table_name}.{operation.column_name}"
    if isinstance(operation, ops.ExecuteSQLOp):
        said = operation.sqltext
        text = (said.text if isinstance(said, TextClause) else str(said)).lower()
        return f"says {text!r}" if any(word in text for word in WORDS) else ""
    return ""


def _added(operation: Any) -> str:
    if isinstance(operation, ops.CreateTableOp):
        return f"makes table {operation.table_name}"
    return f"makes column {operation.column.name}" if isinstance(operation, ops.AddColumnOp) else ""


def _unwritable(operation: Any) -> str:
    """What the release before cannot write any more, because it does not know of it."""
    if not isinstance(operation, ops.AddColumnOp):
        return ""
    column = operation.column
    needs = not column.nullable and column.server_default is None
    return f"adds {operation.table_name}.{column.name}, which the release before cannot fill" if needs else ""
