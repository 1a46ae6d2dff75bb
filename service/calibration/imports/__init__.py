"""Results of other tools, read as measurements; an error names the line."""

from service.errors import Problem, Refused


def refused(field: str, code: str, message: str, fix: str, line: int | None = None) -> Refused:
    """The refusal of a file."""
    place = "" if line is None else f"line {line}: "
    return Refused(Problem(field=field, code=code, message=f"{place}{message}", fix=fix))


def refuse_empty(text: str, what: str) -> None:
    """Refuse a file in which nothing stands."""
    if not text.strip():
        raise refused(
            "", "empty", f"the file is empty, so it holds no {what}", "check what wrote it, and send it again"
        )
