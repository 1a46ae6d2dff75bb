"""What is one item of a sweep's lists, whatever stands in the others? A noun, its names looked up."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.catalogue import Catalogue
from service.errors import Problem, Refused
from service.estimator.question import Layout, Recipe
from service.workflows.clusters import read_cluster
from service.workflows.comparison_prices import ANY, SPREAD
from service.workflows.grids import place_of, placed
from service.workflows.models import read_model
from service.workflows.nouns import read_noun
from service.workflows.plan_body import freed, missing
from service.workflows.prices import read_price
from service.workflows.sweep_label import SweepKind, SweepPlan
from service.workflows.sweeps.axes import PriceOfGpu, SweptCluster, SweptLayout, SweptModel, SweptPrice, SweptRecipe


class Items:
    """Reads items of a sweep; clusters before prices, for these are looked up for each GPU that is there.

    Args:
        catalogue: the facts
        kind: what each row of the sweep is
        plan: how plans are ranked
        prices: every price of the sweep, as it was sent
    """

    def __init__(self, catalogue: Catalogue, kind: SweepKind, plan: SweepPlan, prices: Sequence[Any]) -> None:
        self._catalogue = catalogue
        self._is_open = kind == "plan"
        self._plan = plan
        self._places: dict[str | None, Any] = {None: None}
        """A price that holds in each place, by the place."""
        for price in prices:
            self._places.setdefault(place_of(price, catalogue), price)
        self._gpus: dict[str, None] = {}

    def model(self, item: Any) -> SweptModel:
        """An item of the list of models.

        Args:
            item: what a question's model may be

        Returns:
            the model
        """
        preset = item.get("preset") if isinstance(item, Mapping) else item
        found = read_model(item, self._catalogue)
        name = self._catalogue.find_model(preset).row.slug if isinstance(preset, str) else None
        return SweptModel(name=name, model=found.noun)

    def cluster(self, item: Any) -> SweptCluster:
        """An item of the list of clusters.

        Args:
            item: what a question's cluster may be

        Returns:
            the cluster, in each of the places where prices hold
        """
        preset = item.get("preset") if isinstance(item, Mapping) else item
        machine = read_cluster(item, self._catalogue).noun
        name = self._catalogue.find_cluster(preset).row.slug if isinstance(preset, str) else None
        self._gpus[machine.gpu.slug] = None
        at = tuple(placed(machine.cluster, price, self._catalogue).noun for price in self._places.values())
        return SweptCluster(name=name, gpu=machine.gpu, at=at)

    def layout(self, item: Any) -> SweptLayout:
        """An item of the list of layouts.

        Args:
            item: what a question's layout may be, or in a sweep of plans what leaves some of it to the search

        Returns:
            the layout
        """
        if not self._is_open:
            return SweptLayout(layout=read_noun(Layout, item, "layout"))
        _, rest = freed({"layout": item})
        pinned = read_noun(Layout, rest["layout"], "layout")
        return SweptLayout(layout=pinned, open={name: item[name] for name in item if name not in rest["layout"]})

    def recipe(self, item: Any) -> SweptRecipe:
        """An item of the list of recipes.

        Args:
            item: what a question's recipe may be, or in a sweep of plans what leaves some of it to the search

        Returns:
            the recipe
        """
        if not self._is_open:
            return SweptRecipe(recipe=read_noun(Recipe, item, "recipe"))
        _, rest = freed({"recipe": item})
        recipe = read_noun(Recipe, rest["recipe"], "recipe")
        problems = missing(recipe, self._plan.limits, is_priced=True)  # a row without a price says so itself
        if problems:
            raise Refused(*problems)
        return SweptRecipe(recipe=recipe, open={name: item[name] for name in item if name not in rest["recipe"]})

    def price(self, item: Any) -> SweptPrice:
        """An item of the list of prices.

        Args:
            item: what a question's price may be

        Returns:
            what it is for each GPU of the sweep; one that the catalogue lacks for some GPU is refused in its rows
        """
        if isinstance(item, Mapping) and any(item.get(name) == ANY for name in SPREAD):
            message = f"{ANY} stands for several prices, and each row of a sweep has one"
            raise Refused(Problem(field="price", code="several_prices", message=message, fix="list them one by one"))
        read_price(item, None, self._catalogue)
        place = list(self._places).index(place_of(item, self._catalogue))
        return SweptPrice(place=place, of_gpu={gpu: self._of_gpu(item, gpu) for gpu in self._gpus})

    def _of_gpu(self, item: Any, gpu: str) -> PriceOfGpu:
        try:
            return PriceOfGpu(price=read_price(item, gpu, self._catalogue).noun)
        except Refused as refused:
            return PriceOfGpu(price=None, problems=tuple(refused.problems))
