"""The database: SQLite by default, PostgreSQL by URL. Other rooms pass on its engine and connections."""

from sqlalchemy import Connection, Engine

__all__ = ["Connection", "Engine"]
