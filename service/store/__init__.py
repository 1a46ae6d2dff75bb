"""Where are facts kept between two starts? The only room with SQLAlchemy: SQLite by default, PostgreSQL by URL."""

from service.store.engine import is_reachable
from service.store.facts import load_catalogue
from service.store.prepare import prepare_database

__all__ = ["is_reachable", "load_catalogue", "prepare_database"]
