"""Opens spreadsheets in a LibreOffice of its own and prints what their cells show. The system's Python runs it.

On standard input: {"locale": "de-DE", "books": [{"path": "file.ods", "edits": {"Inputs.B9": 3}}]}. LibreOffice fetches
links of a file only where it trusts its folder; so every file is copied into one that the profile names as trusted.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import uno
from com.sun.star.beans import PropertyValue

START_SECONDS = 90.0
REFRESH_LINKS = 3
"""UpdateDocMode FULL_UPDATE."""
VALUE = 1
"""FormulaResultType2 of a number."""

PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting">
<prop oor:name="SecureURL" oor:op="fuse"><value><it>{trusted}</it></value></prop></item>
<item oor:path="/org.openoffice.Setup/L10N">
<prop oor:name="ooSetupSystemLocale" oor:op="fuse"><value>{locale}</value></prop></item>
</oor:items>
"""

Found = TypeVar("Found")


def property_of(name: str, value: object) -> Any:
    """One argument of a call of LibreOffice."""
    made = PropertyValue()
    made.Name, made.Value = name, value
    return made


def awaited(what: str, look: Callable[[], Found | None], process: "subprocess.Popen[bytes]") -> Found:
    """What a look finds, as soon as there is something: LibreOffice says no in many ways until it is ready."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            found = look()
        except Exception:
            found = None
        if found is not None:
            return found
        time.sleep(0.2)
    raise TimeoutError(f"LibreOffice did not {what}; its exit code: {process.poll()}")


@contextmanager
def desktop(locale: str) -> Iterator[Callable[[str], Any]]:
    """Opens spreadsheets by path, an empty one by an empty path, while LibreOffice runs in a profile of its own."""
    with tempfile.TemporaryDirectory(prefix="traincost-calc-", ignore_cleanup_errors=True) as scratch:
        user, trusted = Path(scratch, "profile", "user"), Path(scratch, "books")
        user.mkdir(parents=True)
        trusted.mkdir()
        profile = PROFILE.format(trusted=trusted.as_uri(), locale=locale)
        (user / "registrymodifications.xcu").write_text(profile, encoding="utf-8")
        pipe = f"traincost{os.getpid()}"
        options = ["--headless", "--norestore", "--nologo", "--nodefault", "--nolockcheck"]
        places = [f"-env:UserInstallation={user.parent.as_uri()}", f"--accept=pipe,name={pipe};urp;"]
        process = subprocess.Popen(
            ["soffice", *options, *places], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        local = uno.getComponentContext()
        resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
        address = f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext"
        try:
            context = awaited("start", lambda: resolver.resolve(address), process)
            desk = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
            arguments = (property_of("Hidden", True), property_of("UpdateDocMode", REFRESH_LINKS))

            def opened(path: str) -> Any:
                url = Path(shutil.copy(path, trusted)).as_uri() if path else "private:factory/scalc"
                return awaited("open the file", lambda: desk.loadComponentFromURL(url, "_blank", 0, arguments), process)

            yield opened
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


def cell_at(document: Any, place: str) -> Any:
    """A cell by sheet and address; without a sheet, of the first."""
    sheet, _, address = place.rpartition(".")
    sheets = document.Sheets
    return (sheets.getByName(sheet) if sheet else sheets.getByIndex(0)).getCellRangeByName(address)


def type_in(document: Any, edits: dict[str, Any]) -> None:
    """Put texts, numbers and formulas into cells."""
    for place, entry in edits.items():
        cell = cell_at(document, place)
        if isinstance(entry, str) and entry.startswith("="):
            cell.setFormula(entry)
        elif isinstance(entry, str):
            cell.setString(entry)
        else:
            cell.setValue(entry)


def cells_of(document: Any) -> Iterator[dict[str, Any]]:
    """What every cell in use shows."""
    for number in range(document.Sheets.getCount()):
        sheet = document.Sheets.getByIndex(number)
        cursor = sheet.createCursor()
        cursor.gotoEndOfUsedArea(False)
        last = cursor.getRangeAddress()
        for row in range(last.EndRow + 1):
            for column in range(last.EndColumn + 1):
                cell = sheet.getCellByPosition(column, row)
                if cell.getType().value != "EMPTY":
                    yield _told(cell, f"{sheet.getName()}.{chr(ord('A') + column)}{row + 1}")


def _told(cell: Any, place: str) -> dict[str, Any]:
    error = cell.getError()
    is_value = cell.getType().value == "VALUE" or (
        cell.getType().value == "FORMULA" and cell.FormulaResultType2 == VALUE and not error
    )
    return {
        "place": place,
        "formula": cell.getFormula(),
        "number": cell.getValue() if is_value else None,
        "text": cell.getString(),
        "error": error,
    }


def main() -> None:
    """Print the cells of each book, as JSON."""
    asked = json.load(sys.stdin)
    told: list[list[dict[str, Any]]] = []
    with desktop(asked["locale"]) as opened:
        for book in asked["books"]:
            document = opened(book["path"])
            type_in(document, book["edits"])
            document.calculateAll()
            told.append(list(cells_of(document)))
            document.close(True)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
