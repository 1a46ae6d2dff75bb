"""What is wrong with a file of another tool, and where?"""

from service.errors import Problem, Refused


def refused(field: str, code: str, message: str, fix: str, line: int | None = None) -> Refused:
    """The refusal of a file.

    Args:
        field: the column, or the parameter that is missing
        code: stable name of the broken rule
        message: what is wrong
        fix: what to do
        line: line of the file; None where it is the file as a whole

    Returns:
        the error to raise
    """
    place = "" if line is None else f"line {line}: "
    return Refused(Problem(field=field, code=code, message=f"{place}{message}", fix=fix))


def refuse_empty(text: str, what: str) -> None:
    """Refuse a file in which nothing stands.

    Args:
        text: the file
        what: what it should hold

    Raises:
        Refused: it is empty
    """
    if not text.strip():
        raise refused(
            "", "empty", f"the file is empty, so it holds no {what}", "check what wrote it, and send it again"
        )
