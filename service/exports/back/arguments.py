"""The options of a command line, read as a shell would, but for what only a shell can know."""

import re
from collections.abc import Iterator
from itertools import islice

from service.exports.back.entries import Entry, once
from service.text_bounds import MOST_DIGITS, MOST_WORDS, Lines, Place, refusal, too_many_digits, too_many_words

_BETWEEN = re.compile(r"(?:\s|\\\r?\n)*+")
_PLAIN = re.compile(r"[^\s'\"$`\\]++")
_COMMENT = re.compile(r"[^\n]*+")
_LONG_NUMBER = re.compile(rf"[+-]?[\d.]{{{MOST_DIGITS + 1}}}")


def read_arguments(text: str) -> tuple[Entry, ...]:
    """The options of a command line; what stands before the program's own options is passed over.

    Args:
        text: the command line, its lines joined by backslashes or not

    Returns:
        each option with its words

    Raises:
        Refused: a quote is not closed, a word is a variable, an option is given twice

    >>> [(entry.name, entry.value) for entry in read_arguments("x.py --a 1 2 --b=3 --c")]
    [('a', ('1', '2')), ('b', ('3',)), ('c', ())]
    """
    words = list(islice(_words(text, Lines(text)), MOST_WORDS + 1))
    if len(words) > MOST_WORDS:
        raise too_many_words(words[-1][1])
    program = max((n for n, (word, _) in enumerate(words) if word.endswith(".py")), default=-1)
    found: list[tuple[str, list[str], Place]] = []
    for word, place in words[program + 1 :]:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found.append((name, [value] if equals else [], place))
        elif found:
            found[-1][1].append(word)
        else:
            raise refusal(
                place, "not_an_option", "the arguments begin with no option", "begin with one, such as --bf16"
            )
    return once(Entry(name, tuple(values), place) for name, values, place in found)


def _words(text: str, lines: Lines) -> Iterator[tuple[str, Place]]:
    """Words and where they begin."""
    offset = 0
    while True:
        offset = _end(_BETWEEN, text, offset)
        if offset == len(text):
            return
        if text[offset] == "#":
            offset = _end(_COMMENT, text, offset)
            continue
        word, after = _word(text, offset, lines)
        if _LONG_NUMBER.match(word):
            raise too_many_digits(lines.place(offset))
        yield word, lines.place(offset)
        offset = after


def _end(pattern: re.Pattern[str], text: str, offset: int) -> int:
    """Where a pattern that always matches ends."""
    match = pattern.match(text, offset)
    return match.end() if match else offset


def _word(text: str, start: int, lines: Lines) -> tuple[str, int]:
    """The word that begins somewhere, without its quotes, and where it ends."""
    parts: list[str] = []
    offset = start
    while offset < len(text) and not text[offset].isspace():
        letter = text[offset]
        if letter in "'\"":
            end = text.find(letter, offset + 1)
            if end < 0:
                raise refusal(lines.place(offset), "not_closed", "a quote is not closed", "close it")
            parts.append(text[offset + 1 : end])
            offset = end + 1
        elif letter in "$`":
            message = "a variable or command has a value that is not given"
            raise refusal(lines.place(offset), "variable", message, "write its value instead")
        elif letter == "\\":
            if text.startswith(("\\\n", "\\\r\n"), offset):
                break
            parts.append(text[offset + 1 : offset + 2])
            offset += 2
        else:
            end = _end(_PLAIN, text, offset)
            parts.append(text[offset:end])
            offset = end
    return "".join(parts), offset
