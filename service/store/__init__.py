"""Where are facts kept between two starts? The only room with SQLAlchemy: SQLite by default, PostgreSQL by URL."""

from sqlalchemy import Engine

from service.store.engine import is_reachable
from service.store.facts import load_catalogue
from service.store.prepare import prepare_database
from service.store.scenarios import (
    Saved,
    Scenario,
    change_scenario,
    create_scenario,
    delete_scenario,
    read_answer,
    read_scenario,
    read_scenarios,
    utc_text,
)

__all__ = [
    "Engine",
    "Saved",
    "Scenario",
    "change_scenario",
    "create_scenario",
    "delete_scenario",
    "is_reachable",
    "load_catalogue",
    "prepare_database",
    "read_answer",
    "read_scenario",
    "read_scenarios",
    "utc_text",
]
