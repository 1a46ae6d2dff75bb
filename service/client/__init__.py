"""Python client of the service: `Client` sends questions over HTTP and reads answers as dataclasses."""

from service.client.client import BatchAnswer, Client
from service.client.expressions import UnreadableExpression, evaluate
from service.client.lists import StoredRow
from service.client.reading import ClientError, Finding, Problem, Unreachable, Unreadable
from service.client.sending import Event, Retries
from service.estimator.question import Cluster, Layout, Model, OwnedPrice, Price, Recipe, Recompute

__all__ = [
    "BatchAnswer",
    "Client",
    "ClientError",
    "Cluster",
    "Event",
    "Finding",
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
    "UnreadableExpression",
    "evaluate",
]
