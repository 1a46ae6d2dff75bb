"""Is it told once, and completely, how checkpoints are taken and what hardware cost?"""

from service.estimator.price import OwnedPrice
from service.estimator.question import Layout, Question
from service.estimator.rules import Demand


def _interval_told_once(asked: Question, _: Layout) -> bool:
    told = asked.recipe.checkpoint
    return told is None or told.rule is None or told.interval_seconds is None


def _interval_words(asked: Question, _: Layout) -> tuple[str, str]:
    told = asked.recipe.checkpoint
    said = "" if told is None else f"interval_seconds {told.interval_seconds:g} and rule {told.rule}"
    return (
        f"the time between checkpoints is told twice, by {said}, and they may differ",
        "leave rule or interval_seconds out",
    )


def _stall_known(asked: Question, _: Layout) -> bool:
    told = asked.recipe.checkpoint
    return told is None or told.asynchronous or (told.stall_seconds is None) != (told.write_bytes_per_s is None)


def _stall_words(asked: Question, _: Layout) -> tuple[str, str]:
    told = asked.recipe.checkpoint
    if told is not None and told.stall_seconds is not None:
        return (
            f"a checkpoint that is not asynchronous stalls for stall_seconds {told.stall_seconds:g}, and until it is "
            "written at write_bytes_per_s: both are told, and they may differ",
            "leave stall_seconds or write_bytes_per_s out",
        )
    return (
        "a checkpoint that is not asynchronous stalls until it is written, and how long that takes is not told",
        "give checkpoint.stall_seconds or checkpoint.write_bytes_per_s",
    )


def _purchase_known(asked: Question, _: Layout) -> bool:
    return not isinstance(asked.price, OwnedPrice) or asked.price.purchase_usd is not None


def _purchase_words(asked: Question, _: Layout) -> tuple[str, str]:
    return (
        f"own hardware is written off from its purchase price, and the price of {asked.gpu.slug} is not known",
        "give purchase_usd, what one GPU costs with its share of server and network",
    )


DEMANDS = (
    Demand("interval_is_told_once", "recipe.checkpoint.rule", _interval_told_once, _interval_words),
    Demand("stall_is_known", "recipe.checkpoint.asynchronous", _stall_known, _stall_words),
    Demand("purchase_price_is_known", "price.purchase_usd", _purchase_known, _purchase_words),
)
"""What a run has to meet, whatever configuration it runs."""
