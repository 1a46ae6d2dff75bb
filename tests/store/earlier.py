"""Rows that an earlier version wrote, kept as text, put back at its revision, upgraded, and compared.

Each file in earlier/ holds one database as the code of that version wrote it over HTTP (`.ci/proof upgrades --record`
takes that code out of the history), and what that version answered about the custom rows, scenarios and other objects.
"""

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from alembic import command
from alembic.config import Config
from sqlalchemy import JSON, Connection, DateTime, Engine, LargeBinary, func, insert, select

from service.estimator import FORMULAS_VERSION
from service.store.backups import described_tables
from service.store.database import HEAD, migrations_folder
from service.store.engine import reading, writing
from tests.api.asking import QUESTION, Ask
from tests.api.own_bodies import OWN
from tests.fixtures import asking, one_by_one, running

FOLDER = Path(__file__).parent / "earlier"

Rows = dict[str, list[dict[str, Any]]]
"""Rows by table, each column by its name."""

REWRITTEN: Mapping[str, frozenset[str]] = {"jobs": frozenset({"owner"}), "measurements": frozenset({"owner"})}
"""Columns whose values a migration changes on purpose: 0014 gives launch checks to the owner of the key that asked."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One database of an earlier version, and what that version answered."""

    revision: str
    """Revision of its tables."""
    rows: Rows
    """Every row of every table, JSON as it is, moments and bytes as text."""
    answers: list[list[Any]]
    """JSON answers of GET requests: path, name of the key that asked, answer."""
    keys: dict[str, str]
    """Keys to that service, by name."""

    def write(self, file: Path) -> None:
        """Keep it as a file whose bytes depend on nothing else."""
        content = json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True)
        file.write_bytes(gzip.compress(content.encode(), mtime=0))

    @staticmethod
    def read(file: Path) -> "Recording":
        """Take one from a file."""
        return Recording(**json.loads(gzip.decompress(file.read_bytes())))


def recordings() -> Sequence[str]:
    """Revisions that there are recordings of."""
    return sorted(file.name.removesuffix(".json.gz") for file in FOLDER.glob("*.json.gz"))


def recording(revision: str) -> Recording:
    """The recording of a revision."""
    return Recording.read(FOLDER / f"{revision}.json.gz")


def upgrade(engine: Engine, revision: str) -> None:
    """Bring a database to a revision, as a start of the service does, but without filling it."""
    with writing(engine) as connection:
        config = Config(str(migrations_folder() / "alembic.ini"), attributes={"connection": connection})
        command.upgrade(config, revision)


def rows_in(connection: Connection) -> Rows:
    """Every row of a database as plain JSON."""
    return {
        table.name: [
            {name: _plain(value) for name, value in row.items()} for row in connection.execute(select(table)).mappings()
        ]
        for table in described_tables(connection)
    }


def put_back(engine: Engine, recorded: Recording) -> None:
    """Fill an empty database at the recording's own revision."""
    upgrade(engine, recorded.revision)
    with writing(engine) as connection:
        for table in described_tables(connection):
            held = [
                {name: _typed(table.columns[name].type, value) for name, value in row.items()}
                for row in recorded.rows.get(table.name, [])
            ]
            if held:
                connection.execute(insert(table), held)
            if held and connection.dialect.name == "postgresql" and "number" in table.primary_key.columns:
                sequence = func.pg_get_serial_sequence(table.name, "number")  # none where the service gives numbers out
                connection.execute(select(func.setval(sequence, max(row["number"] for row in held))))


def lost_rows(before: Rows, after: Rows) -> Iterator[str]:
    """Rows of one state of a database that another lacks, or has with other values in a column of both."""
    for name, rows in before.items():
        skipped = REWRITTEN.get(name, frozenset())
        columns = sorted(rows[0].keys() - skipped) if rows else []
        left = [_text(row, columns) for row in after.get(name, [])]
        for row in rows:
            if (wanted := _text(row, columns)) in left:
                left.remove(wanted)
            else:
                yield f"{name}: {wanted[:300]}"


def _text(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    return json.dumps({name: row.get(name, "the column is gone") for name in columns}, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _typed(kind: Any, value: Any) -> Any:
    if value is None or isinstance(kind, JSON):
        return value
    if isinstance(kind, LargeBinary):
        return base64.b64decode(value)
    return datetime.fromisoformat(value) if isinstance(kind, DateTime) else value


NEWER = frozenset({"etag", "links", "downloads"})
"""Fields whose values follow this version and not what is stored."""


def differences(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Values of an earlier answer that a later one lacks or has otherwise; fields may have been added."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name not in NEWER:
                yield from differences(value, after.get(name, "missing"), f"{at}/{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{at}/{place}")
    elif before != after:
        yield f"{at}: {str(before)[:80]!r} became {str(after)[:80]!r}"


class Upgraded:
    """A service of this version on a database that an earlier one wrote."""

    def __init__(self, ask: Ask, recorded: Recording) -> None:
        self._ask, self._recorded = ask, recorded

    def send(self, method: str, path: str, by: str, **request: Any) -> httpx.Response:
        """Ask with a key that the earlier version made; before there were keys, without one."""
        key = self._recorded.keys.get(by)
        headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **request.pop("headers", {})}
        return self._ask(method, path, headers=headers, **request)

    def unanswered(self) -> Iterator[str]:
        """What the earlier version answered and this one does not, or not the same."""
        for path, by, before in self._recorded.answers:
            answer = self.send("GET", path, by)
            if answer.status_code == 404 and self._is_left_to_admins(path):
                answer = self.send("GET", path, "admin")
            if answer.status_code == 404 and self._is_of_former_formulas(path, before):
                continue
            if answer.status_code != 200:
                yield f"{path}: {answer.status_code} {answer.text[:300]}"
                continue
            own = self._owner(by)
            yield from (f"{path}{one}" for one in differences(_of_owner(before, own), _of_owner(answer.json(), own)))

    def _owner(self, by: str) -> str | None:
        """Owner of a key; None before there were keys."""
        keys = self._recorded.rows.get("api_keys", [])
        return next((row["owner"] for row in keys if row["name"] == by), None)

    def _is_left_to_admins(self, path: str) -> bool:
        """Whether it is the estimate of a check, whose owner no row tells, where there are several owners."""
        stored = {row["id"] for row in self._recorded.rows.get("estimates", [])}
        owners = {row["owner"] for row in self._recorded.rows.get("api_keys", [])}
        return "/estimates/" in path and path.rpartition("/")[2] not in stored and len(owners) > 1

    def _is_of_former_formulas(self, path: str, before: dict[str, Any]) -> bool:
        """Whether it is the estimate of a check, of which only the question is stored, under formulas that are gone."""
        stored = {row["id"] for row in self._recorded.rows.get("estimates", [])}
        is_stored = path.rpartition("/")[2] in stored
        return "/estimates/" in path and not is_stored and before["versions"]["formulas"] != FORMULAS_VERSION

    def forgotten(self, every: int) -> Iterator[str]:
        """Rows of the former catalogue, one of so many, that `rev=` does not answer."""
        rows, by = self._recorded.rows, next(iter(self._recorded.keys), "")
        made = rows.get("changes", [])
        newest = max(made, key=lambda row: row["number"])["catalogue_revision"] if made else None
        digest = newest or rows["seedings"][0]["catalogue_revision"]
        asked: list[dict[str, Any]] = [
            {"kind": "memory", "body": {**QUESTION, "layout": {}, **part}}
            for plural, form in FORMS.items()
            for part in ({form[0]: form[1](row["slug"])} for row in _holding(rows[plural])[::every])
        ]
        answer = self.send("POST", f"/v1/batch?rev={digest}", by, json={"questions": asked})
        if answer.status_code != 200:
            yield f"rev={digest}: {answer.status_code} {answer.text[:300]}"
            return
        for question, one in zip(asked, answer.json()["answers"], strict=True):
            body = one["body"]
            if one["status"] == 200 and body["versions"]["catalogue"] != digest:
                yield f"rev={digest}: answered under {body['versions']}"
            if {error["code"] for error in body.get("errors", [])} & {"unknown_name", "unknown"}:
                yield f"rev={digest}: {question['body']['model']} on {question['body']['cluster']} is unknown"

    def unchangeable(self) -> Iterator[str]:
        """Custom rows and scenarios that cannot be changed and deleted."""
        for path, by, _ in self._recorded.answers:
            if "?" in path or path.count("/") != 3:
                continue
            plural = path.split("/")[2]
            if plural not in CHANGED:
                continue
            read = self.send("GET", path, by)
            etag = {"If-Match": read.headers.get("etag", "")}
            changed = self.send("PATCH", path, by, json=CHANGED[plural], headers=etag)
            if changed.status_code != 200 or next(iter(differences(CHANGED[plural], changed.json())), None):
                yield f"PATCH {path}: {changed.status_code} {changed.text[:300]}"
                continue
            etag = {"If-Match": changed.headers["etag"]}
            gone = self.send("DELETE", path, by, headers=etag)
            if gone.status_code != 204:
                yield f"DELETE {path}: {gone.status_code} {gone.text[:300]}"


def _of_owner(answer: dict[str, Any], owner: str | None) -> dict[str, Any]:
    """An answer without what others own in a list: a later version may show that to fewer callers."""
    if owner is None or "items" not in answer:
        return answer
    return {**answer, "items": [one for one in answer["items"] if one.get("owner", owner) == owner]}


def _holding(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row.get("until_change") is None]


FORMS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "models": ("model", lambda slug: slug),
    "gpus": ("cluster", lambda slug: {"gpu": slug, "gpus": 8}),
    "clusters": ("cluster", lambda slug: slug),
}
"""How a question names a row of a list."""

CHANGED: dict[str, dict[str, Any]] = {own.plural: own.change for own in OWN} | {
    "scenarios": {"note": "after the upgrade"}
}
"""What is changed in a row of each list."""


def faults_of_upgrade(engine: Engine, url: str, recorded: Recording, every: int = 1) -> list[str]:
    """Upgrade a database as a start of the service does, and look for losses; asks about one of `every` rows."""
    with reading(engine) as connection:
        before = rows_in(connection)
    upgrade(engine, HEAD)
    with reading(engine) as connection:
        found = [f"lost {one}" for one in lost_rows(before, rows_in(connection))]
    with running(url) as app, asking(app) as together:
        service = Upgraded(one_by_one(together), recorded)
        found += [*service.unanswered(), *service.forgotten(every), *service.unchangeable()]
    return found
