"""Which of the forms that an answer has does the caller prefer?"""

from collections.abc import Sequence


def preferred(accept: str, offered: Sequence[str]) -> str:
    """The media type that a caller likes best.

    Args:
        accept: the Accept header; empty where there is none
        offered: media types that the answer has, the one that is given where nothing tells them apart first

    Returns:
        one of them

    >>> preferred("text/csv, application/json;q=0.5", ("application/json", "text/csv"))
    'text/csv'
    >>> preferred("*/*", ("application/json", "text/csv"))
    'application/json'
    """
    said = [item.partition(";") for item in accept.lower().split(",")]
    weights = {media.strip(): _weight(parameters) for media, _, parameters in said}

    return max(offered, key=lambda media: next((weights[name] for name in _ranges(media) if name in weights), 0.0))


def _ranges(media: str) -> tuple[str, ...]:
    """What an Accept header may call a media type, the most exact first."""
    return media, f"{media.partition('/')[0]}/*", "*/*"


def _weight(parameters: str) -> float:
    """The q of a media range; 1 where it has none that can be read."""
    told = [text.strip().removeprefix("q=") for text in parameters.split(";") if text.strip().startswith("q=")]
    try:
        return float(told[0]) if told else 1.0
    except ValueError:
        return 1.0
