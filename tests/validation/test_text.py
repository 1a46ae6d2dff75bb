"""Texts are stored in composed form, and invisible characters are refused."""

import pytest

from service.catalogue.indexes import normal
from service.errors import Refused
from service.validation.json_text import checked_texts


@pytest.mark.parametrize("text", ["", "caf\u00e9", "模型 🚀 \u200d", "שלום", " spaces ", "=1+1", "\u202e"])
def test_what_shows_is_kept(text: str) -> None:
    assert checked_texts({"name": text, "aliases": [text], "count": 1}) == {"name": text, "aliases": [text], "count": 1}


def test_equal_texts_become_equal() -> None:
    assert checked_texts({"name": "cafe\u0301", "aliases": ["e\u0301", 1]}) == {
        "name": "caf\u00e9",
        "aliases": ["\u00e9", 1],
    }
    assert normal("cafe\u0301-7b") == normal("CAF\u00c9 7b")


@pytest.mark.parametrize("letter", ["\0", "\t", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\u2029"])
def test_what_nobody_sees_is_refused_where_it_stands(letter: str) -> None:
    with pytest.raises(Refused) as refused:
        checked_texts({"name": f"a{letter}b", "aliases": ["c", letter], "vendor": "d"})
    assert [(problem.field, problem.code) for problem in refused.value.problems] == [
        ("name", "not_text"), ("aliases", "not_text"),
    ]  # fmt: skip


def test_notes_have_lines() -> None:
    assert checked_texts({"note": "a\r\n\tb"}) == {"note": "a\r\n\tb"}
    with pytest.raises(Refused) as refused:
        checked_texts({"note": "a\x0b"})
    assert refused.value.problems[0].fix == "leave out every control character but line breaks and tabs"
