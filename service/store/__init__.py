"""Where are facts kept between two starts? The only room with SQLAlchemy: SQLite by default, PostgreSQL by URL."""

from sqlalchemy import Engine

from service.store.changes import Change, Rows, Written
from service.store.checked_questions import (
    CheckedQuestion,
    forget_checked_questions,
    keep_checked_questions,
    read_checked_question,
)
from service.store.engine import is_reachable
from service.store.history import History, load_catalogue
from service.store.keyring import SEPARATOR, KeyRing
from service.store.keys import ApiKey, Scope, create_key, read_keys, revoke_key
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
    "SEPARATOR",
    "ApiKey",
    "Change",
    "CheckedQuestion",
    "Engine",
    "History",
    "KeyRing",
    "Rows",
    "Saved",
    "Scenario",
    "Scope",
    "Written",
    "change_scenario",
    "create_key",
    "create_scenario",
    "delete_scenario",
    "forget_checked_questions",
    "is_reachable",
    "keep_checked_questions",
    "load_catalogue",
    "prepare_database",
    "read_answer",
    "read_checked_question",
    "read_keys",
    "read_scenario",
    "read_scenarios",
    "revoke_key",
    "utc_text",
]
