"""What does a command line say, option by option? Read as a shell would, but for what only a shell can know."""

from collections.abc import Iterator
from itertools import islice

from service.exports.back.entries import MOST_WORDS, Entry, Place, once, place_of, refusal

_QUOTES = "'\""


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
    words = list(islice(_words(text), MOST_WORDS + 1))
    if len(words) > MOST_WORDS:
        raise refusal(words[-1][1], "too_long", "the line has too many words", "send less")
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
    return once([Entry(name, tuple(values), place) for name, values, place in found])


def _words(text: str) -> Iterator[tuple[str, Place]]:
    """Words and where they begin."""
    offset, length = 0, len(text)
    while offset < length:
        if text[offset].isspace():
            offset += 1
        elif text.startswith(("\\\n", "\\\r\n"), offset):
            offset = text.index("\n", offset) + 1
        elif text[offset] == "#":
            offset = (text.find("\n", offset) + length + 1) % (length + 1) or length
        else:
            word, after = _word(text, offset)
            yield word, place_of(text, offset)
            offset = after


def _word(text: str, start: int) -> tuple[str, int]:
    """The word that begins somewhere, without its quotes, and where it ends."""
    letters: list[str] = []
    offset = start
    while offset < len(text) and not text[offset].isspace():
        letter = text[offset]
        if letter in _QUOTES:
            end = text.find(letter, offset + 1)
            if end < 0:
                raise refusal(place_of(text, offset), "not_closed", "a quote is not closed", "close it")
            letters.append(text[offset + 1 : end])
            offset = end + 1
        elif letter in "$`":
            fix = "write its value instead"
            raise refusal(place_of(text, offset), "variable", "a variable or command has a value that is not told", fix)
        elif letter == "\\":
            if text.startswith(("\\\n", "\\\r\n"), offset):
                break
            letters.append(text[offset + 1 : offset + 2])
            offset += 2
        else:
            letters.append(letter)
            offset += 1
    return "".join(letters), offset
