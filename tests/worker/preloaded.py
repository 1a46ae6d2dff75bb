"""What processes of the tests of faults need, loaded once before they are forked; the facts too, which cost most."""

from service.api.app import create_app
from service.api.server import run
from service.catalogue import shipped_catalogue
from service.worker.command import main
from tests.worker.sleeping import sleep

LOADED = (create_app, run, shipped_catalogue(), main, sleep)
