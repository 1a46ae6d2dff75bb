"""Answers to sentences, with what was understood, assumed and not understood of them."""

from dataclasses import replace

from service.answers.ask import LimitCheck, LimitName, LimitVerdict, SentenceAnswer
from service.answers.estimates import Answer
from service.catalogue import Catalogue
from service.errors import Refused
from service.estimator.answer import Interval
from service.features.estimates.answers import answer
from service.features.estimates.planned import planned
from service.validation.questions import read_question
from service.validation.reading import to_bytes
from service.validation.sentences.question import ReadSentence, read_sentence

SENTENCE = "q"
"""The parameter that holds a sentence."""


def ask(text: str, catalogue: Catalogue) -> SentenceAnswer:
    """Answer a sentence."""
    return answer_of_sentence(read_sentence(text, catalogue, SENTENCE), catalogue)


def answer_of_sentence(sentence: ReadSentence, catalogue: Catalogue) -> SentenceAnswer:
    """Answer a sentence that was read; a rule that its question breaks is a problem of the sentence."""
    try:
        found = answer(read_question(sentence.body, catalogue, planner=planned), catalogue)
    except Refused as refused:
        moved = (replace(one, field=SENTENCE, message=f"{one.field}: {one.message}") for one in refused.problems)
        raise Refused(*moved) from None
    return SentenceAnswer(
        chips=sentence.chips,
        question=sentence.body,
        limits=tuple(_checked(name, limit, found) for name, limit in sentence.limits.items()),
        answer=found,
    )


def sentence_json(sentence: ReadSentence, catalogue: Catalogue) -> bytes:
    return to_bytes(answer_of_sentence(sentence, catalogue))


def _checked(name: LimitName, limit: float, found: Answer) -> LimitCheck:
    """A deadline or budget against the total that it limits."""
    total: Interval | None = getattr(found.totals, name, None)
    verdict: LimitVerdict = "unknown"
    if total is not None:
        verdict = "kept" if total.high <= limit else "missed" if total.low > limit else "at_risk"
    return LimitCheck(**{name: limit}, verdict=verdict)
