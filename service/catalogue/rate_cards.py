"""Which rate of a team's own card holds for a GPU, and on what terms?"""

from service.catalogue.names import Found
from service.catalogue.rows import Rate, RateCardRow
from service.errors import Problem, Refused
from service.estimator.names import PriceModel

MOST_CHOICES = 8
"""GPUs or terms that an error lists."""


def rate_of(card: RateCardRow, gpu: str, price_model: PriceModel | None, field: str) -> Found[Rate]:
    """The rate of a card for one GPU.

    A rate without terms holds on any that have no rate of their own. Where no terms are asked for, that rate is
    taken, else the only one; several that differ in their terms are refused, because the caller has to choose.

    Args:
        card: the card
        gpu: catalogue name of the GPU
        price_model: on what terms; None where the caller does not say
        field: dotted path of the price in the question, for the error

    Returns:
        the rate, and what was assumed to take it

    Raises:
        Refused: the card has no such rate, or several
    """
    rates = {rate.price_model: rate for rate in card.rates if rate.gpu == gpu}
    if not rates:
        priced = _told(sorted({rate.gpu for rate in card.rates}))
        message = f"the rate card has no rate for {gpu}, the GPU of the cluster; its rates are for {priced}"
        raise Refused(
            _problem(f"{field}.rate_card", "no_rate", message, "add a rate to the card, or give another price")
        )
    if price_model in rates:
        return Found(rates[price_model], None)
    if None in rates:
        said = f"the rate card prices {gpu} on any terms alike"
        return Found(rates[None], said if price_model else None)
    terms = _told(sorted(filter(None, rates)))
    if price_model is None and len(rates) == 1:
        (only,) = rates.values()
        return Found(only, f"the rate card prices {gpu} only as {only.price_model}")
    wrong = f"the rate card prices {gpu} as {terms}, and "
    wrong += "no terms are asked for" if price_model is None else "these are other terms"
    raise Refused(_problem(f"{field}.price_model", "no_rate", wrong, f"give price_model as one of {terms}"))


def _told(names: list[str]) -> str:
    return ", ".join(names[:MOST_CHOICES]) + (", ..." if len(names) > MOST_CHOICES else "")


def _problem(field: str, code: str, message: str, fix: str) -> Problem:
    return Problem(field=field, code=code, message=message, fix=fix)
