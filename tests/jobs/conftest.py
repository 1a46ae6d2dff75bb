"""The databases of the tests of the store, for the tests of the queue."""

from tests.store.conftest import database_url, engine, jobs_database, postgresql_url, prepare, queue, sqlite_url

__all__ = ["database_url", "engine", "jobs_database", "postgresql_url", "prepare", "queue", "sqlite_url"]
