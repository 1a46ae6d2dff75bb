"""How does a text fit into one cell of a sheet, or into the comment that a scheduler keeps of a job?"""

LONGEST_LINE = 255
"""Characters that every spreadsheet shows in one cell and every scheduler keeps of a comment."""


def one_line(text: str) -> str:
    r"""A text as one line of printable characters, cut where it is too long.

    >>> one_line("out of\n memory\0")
    'out of memory'

    Args:
        text: any text

    Returns:
        at most 255 characters
    """
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."
