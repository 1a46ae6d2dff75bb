"""On which cluster is the question asked, and what is the cluster's own: a name, a price, parts of the question?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.catalogue import Catalogue
from service.errors import MOST_PROBLEMS, Problem, Refused
from service.workflows.comparison_label import CHANGED, OF_A_CLUSTER, QUESTION, Called
from service.workflows.findings import not_an_object, unknown_field
from service.workflows.merge_patch import merged
from service.workflows.nouns import field_names, read_noun


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item of the list of clusters, its values still as they were sent."""

    place: str
    """Dotted path of the item."""
    cluster: Any
    """The cluster, in any form that a question takes."""
    cluster_place: str
    """Dotted path of the cluster."""
    name: str | None = None
    """What the caller calls it."""
    changes: Mapping[str, Mapping[str, Any]]
    """Fields of the question that are its own, by part."""
    price: Any = None
    """Its own price; None where it has none."""

    @property
    def price_place(self) -> str:
        """Dotted path of its own price."""
        return f"{self.place}.price"

    @property
    def own_price(self) -> Sequence[tuple[str, Any]]:
        """Its own price behind its dotted path; empty where it has none."""
        return () if self.price is None else ((self.price_place, self.price),)

    def question(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The question on this cluster.

        Args:
            asked: the question that is asked of every cluster

        Returns:
            the body that POST /v1/estimates would take
        """
        own = {part: merged(asked.get(part), change) for part, change in self.changes.items()}
        return {**asked, **own, "cluster": self.cluster}

    def placed(self, problem: Problem, price_place: str = "") -> Problem:
        """A problem of the question on this cluster, at the field of the request that has to change.

        Args:
            problem: what is wrong, by its field in the question
            price_place: dotted path of the price that the question is asked at

        Returns:
            the same, by its field in the request
        """
        part, _, rest = problem.field.partition(".")
        if part == "cluster":
            return replace(problem, field=_below(self.cluster_place, rest))
        if part == "price" and price_place:
            return replace(problem, field=_below(price_place, rest))
        own = self.changes.get(part, {})
        is_own = rest.partition(".")[0] in own if rest else bool(own)
        return replace(problem, field=_below(self.place if is_own else QUESTION, problem.field))

    def called(self, catalogue: Catalogue) -> str | None:
        """What the cluster is called: by the caller, else by the catalogue.

        Args:
            catalogue: the presets

        Returns:
            its name; None where nobody named it
        """
        preset = self.cluster.get("preset") if isinstance(self.cluster, Mapping) else self.cluster
        return self.name or (None if preset is None else catalogue.find_cluster(preset).row.slug)


def read_entry(place: str, value: Any) -> Entry:
    """An item of the list of clusters.

    Args:
        place: its dotted path
        value: a cluster, or an object that holds one under `cluster` and what is its own beside it

    Returns:
        the item; the cluster itself is not judged yet

    Raises:
        Refused: an unknown field beside the cluster, or a wrong value
    """
    if not isinstance(value, Mapping) or not _holds_more(value):
        return Entry(place=place, cluster=value, cluster_place=place, changes={})
    unknown = [name for name in value if name not in OF_A_CLUSTER][:MOST_PROBLEMS]
    problems = [unknown_field(place, name, {*OF_A_CLUSTER}) for name in unknown]
    changes = {part: value[part] for part in CHANGED if value.get(part) is not None}
    problems += [
        not_an_object(f"{place}.{part}", ["fields that are this cluster's own"])
        for part, change in changes.items()
        if not isinstance(change, Mapping)
    ]
    if problems:
        raise Refused(*problems)
    called = read_noun(Called, {name: value[name] for name in field_names(Called) if name in value}, place)
    return Entry(
        place=place,
        cluster=value.get("cluster"),
        cluster_place=f"{place}.cluster",
        name=called.name,
        changes=changes,
        price=value.get("price"),
    )


def _holds_more(value: Mapping[str, Any]) -> bool:
    """Whether an object holds a cluster, rather than being one; one field that only such an object has is enough."""
    return any(name in value for name in OF_A_CLUSTER)


def _below(place: str, rest: str) -> str:
    return f"{place}.{rest}" if rest else place
