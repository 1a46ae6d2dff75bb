"""A query gets the newest matching price, and the answer names it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from service.catalogue import Found, PriceQuery, PriceRow, shipped_catalogue
from service.catalogue.prices import PriceIndex, newest_price
from service.errors import UnknownName
from tests.catalogue.shapes import price

QUERY: dict[str, Any] = {"provider": "aws", "region": "us-east-1", "price_model": "on-demand", "gpu": "h100"}


def _newest(*rows: PriceRow, **changes: Any) -> Found[PriceRow]:
    return newest_price(rows, PriceQuery(**{**QUERY, **changes}), "price")


def test_newest_row_counts_and_a_bare_year_is_older_than_its_months() -> None:
    rows = [
        price(as_of=as_of, usd_per_gpu_hour=usd) for as_of, usd in [("2025", 1.0), ("2025-03", 2.0), ("2024-12", 3.0)]
    ]
    found = _newest(*rows)
    assert (found.row.usd_per_gpu_hour, found.assumption) == (2.0, None)


def test_upper_end_of_a_range_is_taken_and_told() -> None:
    found = _newest(
        price(stat="min", usd_per_gpu_hour=1.5), price(stat="max", usd_per_gpu_hour=2.5), price_model="on-demand"
    )
    assert found.row.stat == "max"
    assert found.assumption is not None
    assert "1.5 to 2.5" in found.assumption


def test_whole_machine_comes_before_a_part_of_it() -> None:
    small = price(instance_type="p5.4xlarge", gpu_count=1, usd_per_gpu_hour=1.0)
    found = _newest(small, price())
    assert found.row.instance_type == "p5.48xlarge"
    assert _newest(small, price(), instance_type="P5.4xlarge").row == small


def test_one_price_for_everywhere_answers_to_any_region() -> None:
    everywhere = price(provider="oci", region="all")
    assert _newest(everywhere, provider="oci", region="eu-frankfurt-1").row == everywhere


@pytest.mark.parametrize(
    ("column", "known"),
    [("provider", "aws"), ("region", "us-east-1"), ("price_model", "on-demand"), ("instance_type", "p5.48xlarge")],
)
def test_unknown_price_names_what_there_is(column: str, known: str) -> None:
    with pytest.raises(UnknownName) as refused:
        _newest(price(), **{column: "reserved-3y" if column == "price_model" else "<nowhere>"})
    (problem,) = refused.value.problems
    assert (problem.field, problem.code) == (f"price.{column}", "unknown_price")
    assert known in problem.fix
    assert "<" not in problem.message


def test_gpu_that_nobody_rents_out() -> None:
    with pytest.raises(UnknownName) as refused:
        _newest(price(), gpu="rtx-5090")
    assert "usd_per_gpu_hour" in refused.value.problems[0].fix


def test_shipped_price_of_an_aws_h100() -> None:
    """AWS p5.48xlarge in us-east-1: 55.04 USD an hour for 8 GPUs (skypilot-catalog v9 at 2c3d7ea)."""
    found = shipped_catalogue().newest_price(PriceQuery(**{**QUERY, "gpu": "h100-sxm5-80gb"}))
    assert found.row.usd_per_gpu_hour == 6.88
    assert found.row.usd_per_instance_hour == 55.04


def test_an_index_finds_and_refuses_as_a_look_at_every_row_does() -> None:
    shipped = shipped_catalogue()
    asked = {(row.gpu, row.provider.upper(), row.region, row.price_model) for row in shipped.prices}
    gpu = shipped.prices[0].gpu
    for wanted in (*sorted(asked), (gpu, "nobody", "all", "spot"), ("no-gpu", "aws", "all", "spot")):
        query = PriceQuery(**dict(zip(("gpu", "provider", "region", "price_model"), wanted, strict=True)))  # type: ignore[arg-type]  # texts
        looked_through = _said(partial(newest_price, shipped.prices, query, "price"))
        assert _said(partial(shipped.newest_price, query)) == looked_through


def _said(find: Callable[[], Found[PriceRow]]) -> object:
    """What is found, or why nothing is."""
    try:
        return find()
    except UnknownName as error:
        return error.problems


def test_an_index_that_changed_is_one_of_the_rows_after_the_change() -> None:
    rows = [price(provider=provider, region=region) for provider in ("aws", "AWS", "gcp") for region in "abc"]
    index = PriceIndex.of(rows[:6])
    dearer = [price(provider="aws", region=region, usd_per_gpu_hour=9.0) for region in "ca"]
    put = {row.id: row for row in (*dearer, *rows[6:])}
    after = index.changed({**put, rows[1].id: None})
    kept = {row.id: row for row in rows[:6]} | put
    del kept[rows[1].id]
    assert after == PriceIndex.of(kept.values())
    assert list(after.rows) == sorted(kept)
    assert after.offered_by("h100", "Aws") == tuple(sorted((*dearer, *rows[3:6]), key=lambda row: row.id))
    assert index.changed({}) is index
    assert after.changed(dict.fromkeys(after.rows)) == PriceIndex.of(())
