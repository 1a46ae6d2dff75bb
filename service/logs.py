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
"""Id of the request that is being answered; empty where there is none. Threads that work for a request have it too."""

FIELDS = "fields"
"""Name of what a record may hold beside its message: a mapping, of which each entry is a field of the JSON object."""

KEY = re.compile(r"\btck_[\w%.~-]+")
"""Pattern of a key of the service."""

MASK = "***"


class AsText(logging.Formatter):
    """One line for people, its request in brackets; a stack below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """The line.

        Args:
            record: what is logged

        Returns:
            the text, without what is below it
        """
        request_id = REQUEST_ID.get()
        return super().formatMessage(record) + (f" [{request_id}]" if request_id else "")

    def format(self, record: logging.LogRecord) -> str:
        """The line and what is below it.

        Args:
            record: what is logged

        Returns:
            the text, keys masked
        """
        return KEY.sub(MASK, super().format(record))


class AsJson(logging.Formatter):
    """One JSON object on one line, the traceback as a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line.

        Args:
            record: what is logged

        Returns:
            JSON, keys masked
        """
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
    """Write what this process tells to its standard error.

    Args:
        level: least serious messages to write
        log_format: how a line looks
    """
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[log_format]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
