"""How does a scenario become a spreadsheet? As its question's budget, beside what was answered when it was saved."""

import json
from functools import partial

from service.errors import UnknownRevision
from service.store import Engine, History
from service.workflows.budget import Budget
from service.workflows.callers import Caller
from service.workflows.flat_question import flat_question
from service.workflows.metrics import FITS, fits
from service.workflows.scenarios import find_scenario
from service.workflows.stored_answers import stored_answer


def scenario_budget(
    engine: Engine, history: History, caller: Caller, scenario_id: str, revision: int | None, address: str
) -> Budget:
    """The budget of a scenario, under the catalogue that it was answered from.

    Args:
        engine: the database
        history: the catalogues that are kept
        caller: who asks for it
        scenario_id: its id
        revision: which of its revisions; None for the newest
        address: where the service is

    Returns:
        the budget; under the newest catalogue where the scenario's own is kept no longer

    Raises:
        NotFound: the caller has no such scenario or revision
        Refused: its question has no flat form, in which cells ask
    """
    scenario, question = find_scenario(engine, caller, scenario_id, revision)
    catalogue_at = partial(history.at, owner=scenario.owner)
    found = json.loads(stored_answer(engine, None, scenario.estimate_id, catalogue_at))
    pinned: str | None = scenario.catalogue
    try:
        catalogue = catalogue_at(scenario.catalogue)
    except UnknownRevision:
        catalogue, pinned = history.view(scenario.owner), None
    fields = flat_question(question, catalogue)
    return Budget(scenario.name, address, fields, pinned, {**found, FITS: fits(found["verdict"])})
