"""How does a program ask the service? By `Client`, which speaks HTTP and the dataclasses of questions and answers."""

from service.client.batches import BatchAnswer
from service.client.client import Client
from service.client.errors import ClientError, Finding, Problem, Unreachable, Unreadable
from service.client.events import Event
from service.client.lists import Kept
from service.client.sending import Retries
from service.estimator.question import Cluster, Layout, Model, OwnedPrice, Price, Recipe, Recompute

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
    "Unreachable",
    "Unreadable",
]
