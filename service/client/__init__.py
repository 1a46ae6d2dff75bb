"""Python client of the service: `Client` sends questions over HTTP and reads answers as dataclasses."""

from service.client.batches import BatchAnswer
from service.client.client import Client
from service.client.errors import ClientError, Finding, Problem, Unreachable, Unreadable
from service.client.events import Event
from service.client.lists import StoredRow
from service.client.sending import Retries
from service.estimator.question import Cluster, Layout, Model, OwnedPrice, Price, Recipe, Recompute

Kept = StoredRow
"""Earlier name of StoredRow, which programs may import."""

__all__ = [
    "BatchAnswer",
    "Client",
    "ClientError",
    "Cluster",
    "Event",
    "Finding",
    "Kept",
    "Layout",
    "Model",
    "OwnedPrice",
    "Price",
    "Problem",
    "Recipe",
    "Recompute",
    "Retries",
    "StoredRow",
    "Unreachable",
    "Unreadable",
]
