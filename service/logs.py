"""Format of log lines: text or one JSON object, with the id of the request and never with a key."""

import json
import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the current request, also on its threads; empty outside requests."""

FIELDS = "fields"
"""Name of the extra fields of a record: a mapping that is merged into the JSON object."""

KEY = re.compile(r"\btck_[\w%.~-]+")

MASK = "***"


class AsText(logging.Formatter):
    """One line of text with the request id in brackets, and the stack below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The line without the stack."""
        request_id = REQUEST_ID.get()
        return super().formatMessage(record) + (f" [{request_id}]" if request_id else "")

    def format(self, record: logging.LogRecord) -> str:
        """The line with the stack below it, keys masked."""
        return KEY.sub(MASK, super().format(record))


class AsJson(logging.Formatter):
    """One JSON object on one line, with the traceback as a field."""

    def format(self, record: logging.LogRecord) -> str:
        """The JSON line, keys masked."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            fields["request_id"] = request_id
        fields |= getattr(record, FIELDS, {})
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return KEY.sub(MASK, json.dumps(fields, default=str))


FORMATS: Mapping[LogFormat, type[logging.Formatter]] = {"text": AsText, "json": AsJson}


def start_log(level: str, log_format: LogFormat) -> None:
    """Write this process's log to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[log_format]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
