"""Bodies of own rows: for each list the least that makes a row, and something to change in it."""

from dataclasses import dataclass
from typing import Any

from service.catalogue import PriceRow

TINY = {
    "vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
}  # fmt: skip


PRICE_FILLED: dict[str, Any] = {
    "instance_type": "any", "gpu": "h100-sxm5-80gb", "gpu_count": 1, "region": "all", "price_model": "on-demand",
    "stat": "point", "usd_per_gpu_hour": 2.5, "usd_per_instance_hour": 2.5, "source": "tests", "as_of": "2026",
    "verified": "no",
}  # fmt: skip
"""What the least body of a price is filled to, as far as its id tells."""


@dataclass(frozen=True)
class Own:
    """One kind of own row."""

    plural: str
    """The list that it stands in."""
    body: dict[str, Any]
    """The least that makes one, without its slug."""
    change: dict[str, Any]
    """A column and another value of it."""

    def named(self, slug: str) -> dict[str, Any]:
        """A body of this name; a price is told from others by its provider."""
        return {**self.body, ("provider" if self.plural == "prices" else "slug"): slug}

    def key(self, slug: str) -> str:
        """What that row is read by, where its date is a year."""
        if self.plural != "prices":
            return slug
        return PriceRow(provider=slug, **PRICE_FILLED).id

    def path(self, slug: str) -> str:
        """Where that row is read."""
        return f"/v1/{self.plural}/{self.key(slug)}"


OWN = [
    Own("models", TINY, {"num_hidden_layers": 3}),
    Own("gpus", {"memory_bytes": 96e9, "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 8e14, "board_watts": 500},
        {"board_watts": 450}),
    Own("clusters", {"gpu": "h100-sxm5-80gb", "gpus": 16}, {"gpus": 32}),
    Own("prices", {"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 2.5, "as_of": "2026"},
        {"usd_per_gpu_hour": 2.25}),
    Own("rate-cards", {"rates": [{"gpu": "h100-sxm5-80gb", "usd_per_gpu_hour": 1.5}]}, {"note": "until June"}),
    Own("regions", {"grid_kg_co2e_per_kwh": 0.31, "pue": 1.25}, {"grid_kg_co2e_per_kwh": 0.05}),
]  # fmt: skip
IDS = [own.plural for own in OWN]
