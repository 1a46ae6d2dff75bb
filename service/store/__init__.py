"""Where are facts kept between two starts? The only room with SQLAlchemy: SQLite by default, PostgreSQL by URL."""

from service.store.changes import Change, Rows, Written
from service.store.engine import is_reachable
from service.store.history import History, load_catalogue
from service.store.prepare import prepare_database

__all__ = ["Change", "History", "Rows", "Written", "is_reachable", "load_catalogue", "prepare_database"]
