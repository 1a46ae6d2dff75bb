"""Prometheus metrics of the process and the database."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from service import __version__
from service.api.request_context import RequestContext
from service.errors import StartupError
from service.estimator import FORMULAS_VERSION
from service.settings import Settings
from service.store.database import Figures

PATIENCE_SECONDS = 2.0
"""Longest wait for the database. Source: a choice; Prometheus itself waits 10 s."""
FRESH_SECONDS = 5.0
"""Time for which figures are cached. Source: a choice; scrapers ask every 15 s."""

log = logging.getLogger(__name__)


class DatabaseFigures:
    """Cached figures of the database."""

    def __init__(
        self,
        read: Callable[[], Figures],
        patience_seconds: float = PATIENCE_SECONDS,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        self._read = read
        self._patience_seconds, self._fresh_seconds = patience_seconds, fresh_seconds
        self._read_task: Future[Figures] | None = None
        self._cached: tuple[float, Figures] | None = None

    async def now(self) -> Figures | None:
        """The figures; None where the database does not answer in time."""
        if self._cached is not None and monotonic() - self._cached[0] < self._fresh_seconds:
            return self._cached[1]
        if self._read_task is None or self._read_task.done():
            self._read_task = _on_daemon_thread(self._read)
        try:
            reading = asyncio.shield(asyncio.wrap_future(self._read_task))  # it outlives this request
            figures = await asyncio.wait_for(reading, self._patience_seconds)
        except TimeoutError:
            log.warning("the database does not give its figures within %.0f s", self._patience_seconds)
            return None
        except Exception as error:  # of any kind: the counts in memory are served without them
            log.warning("the database does not give its figures: %s", type(error).__name__)
            return None
        self._cached = (monotonic(), figures)
        return figures


def _on_daemon_thread(read: Callable[[], Figures]) -> Future[Figures]:
    """The future result of a function on a daemon thread, which does not delay the end of the process."""
    future: Future[Figures] = Future()

    def run() -> None:
        try:
            future.set_result(read())
        except Exception as error:
            future.set_exception(error)

    Thread(target=run, name="figures", daemon=True).start()
    return future


RefusalKind = Literal["connections", "grammar", "head", "host", "target", "framing", "late"]
"""Too many connections, a parser error, a long head, a wrong Host, another host in the target, wrong framing of the
content, a late head."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of histogram buckets [second]. Source: a choice; an estimate takes 1 to 5 ms."""

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
OTHER = "other"
"""Label of unknown methods."""

NO_STATUS = "none"
"""Status label of a request whose client disconnected before its answer."""

VERDICTS = ("ok", "warn", "deny", "unknown")
ERRORS = ("busy", "unreachable")
POLICIES = ("default", "key", "address")
COMPUTE_OUTCOMES = ("done", "failed", "cancelled", "late")
"""Outcomes of a computation: a result, an exception, a disconnect of its client, its deadline."""
RESTART_REASONS = ("lost", "worn")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


disable_created_metrics()  # type: ignore[no-untyped-call]  # of the library; creation times are not used


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        histogram = partial(Histogram, buckets=BUCKETS, registry=registry)
        self._in_flight = 0
        self._times: dict[tuple[str, str, int | None], Histogram] = {}
        self._requests = histogram(
            "traincost_http_request_seconds",
            "Time until the whole answer was handed over, by the template of its route.",
            ("method", "route", "status"),
        )
        in_flight = gauge("traincost_http_requests_in_flight", "Requests that are being answered.")
        in_flight.set_function(lambda: self._in_flight)
        self.verdicts = self._counter("traincost_check_verdicts", "Checks of jobs.", verdict=VERDICTS)
        self.unjudged = counter(
            "traincost_checks_unjudged", "Jobs that could not be judged, by the code of the reason.", ("reason",)
        )
        self.database_errors = self._counter(
            "traincost_database_errors", "Errors that the database answered, or that it did not answer.", kind=ERRORS
        )
        self.rate_limit_refusals = self._counter(
            "traincost_rate_limit_refusals", "Requests that were too many for a limit.", policy=POLICIES
        )
        self._connection_refusals = self._counter(
            "traincost_connection_refusals",
            "Connections without a request that were refused with a reason.",
            kind=get_args(RefusalKind),
        )
        self.rate_limit_fallbacks = counter(
            "traincost_rate_limit_fallbacks", "Requests that this process counted alone because Redis did not answer."
        )
        self._compute_waiting = gauge("traincost_compute_waiting", "Computations that wait for a process.")
        self._compute_running = gauge("traincost_compute_running", "Computations that run.")
        self.compute_wait_seconds = histogram("traincost_compute_wait_seconds", "Time for which a computation waited.")
        self.compute_seconds = histogram("traincost_compute_seconds", "Time for which a computation ran.")
        self.computations = self._counter(
            "traincost_computations", "Computations that have ended.", outcome=COMPUTE_OUTCOMES
        )
        self.compute_refusals = self._counter(
            "traincost_compute_refusals",
            "Computations that were refused: their caller had too many, or the service had.",
            reason=("caller", "full"),
        )
        self.compute_restarts = self._counter(
            "traincost_compute_restarts", "Computing processes that were replaced.", reason=RESTART_REASONS
        )
        self.computations_shared = counter(
            "traincost_computations_shared",
            "Requests that were answered by a computation which another request had begun.",
        )
        built = gauge("traincost_build_info", "What is running.", ("version", "formulas"))
        built.labels(__version__, FORMULAS_VERSION).set(1)
        ProcessCollector(registry=registry)

    def watch_compute(self, waiting: Callable[[], float], running: Callable[[], float]) -> None:
        """Set the functions that count waiting and running computations."""
        self._compute_waiting.set_function(waiting)
        self._compute_running.set_function(running)

    def begin(self) -> None:
        """Count a request that begins; call it in the event loop only."""
        self._in_flight += 1

    def end(self, method: str, context: RequestContext, seconds: float) -> None:
        """Count a request that has ended."""
        self._in_flight -= 1
        key = (method, context.route, context.status)
        times = self._times.get(key)
        if times is None:
            status = NO_STATUS if context.status is None else str(context.status)
            times = self._requests.labels(method if method in METHODS else OTHER, context.route, status)
            if method in METHODS:
                self._times[key] = times
        times.observe(seconds)

    def refused(self, kind: RefusalKind) -> None:
        """Count a rejected connection; call it in the event loop only."""
        self._connection_refusals.labels(kind).inc()

    def exposed(self, revision: str, figures: Figures | None) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(_Exposition(self._registry, revision, figures))

    def _counter(self, name: str, meaning: str, **label: Sequence[str]) -> Counter:
        ((label_name, values),) = label.items()
        counter = Counter(name, meaning, (label_name,), registry=self._registry)
        for value in values:
            counter.labels(value)
        return counter


class _Exposition(CollectorRegistry):
    """Counted metrics together with current values."""

    def __init__(self, counted: Collector, revision: str, figures: Figures | None) -> None:
        super().__init__()
        self._counted, self._revision, self._figures = counted, revision, figures

    def collect(self) -> Iterator[Metric]:
        yield from self._counted.collect()
        revision = {(self._revision,): 1.0}
        yield _gauge("traincost_catalogue_info", "The catalogue that answers rest on.", ("revision",), revision)
        is_up = {(): float(self._figures is not None)}
        yield _gauge("traincost_database_up", "Whether the database answered with its figures just now.", (), is_up)
        if self._figures is None:
            return
        yield _gauge("traincost_jobs", "Jobs that wait or run.", ("kind", "status"), self._figures.jobs)
        lease = self._figures.oldest_lease_age_seconds
        meaning = "Time since the worker of a running job was last heard of, of the one that is silent longest."
        yield _gauge("traincost_job_oldest_lease_age_seconds", meaning, (), {} if lease is None else {(): lease})
        ages = {(gpu,): age for gpu, age in self._figures.calibration_age_seconds.items()}
        meaning = "Age of the calibration that holds for a GPU."
        yield _gauge("traincost_calibration_age_seconds", meaning, ("gpu",), ages)


def _gauge(name: str, meaning: str, labels: Sequence[str], values: Mapping[Any, float]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, meaning, labels=labels)
    for label_values, value in values.items():
        gauge.add_metric(label_values, value)
    return gauge


if TYPE_CHECKING:
    from service.api.tracing import Tracing

EXPORTER = "opentelemetry-exporter-otlp-proto-http"

WITHOUT_OPENTELEMETRY = (
    "TRAINCOST_OTLP_ENDPOINT needs OpenTelemetry: pip install '.[telemetry]' in the folder of traincost's source"
)


def is_installed() -> bool:
    """Whether OpenTelemetry is installed."""
    try:
        version(EXPORTER)
    except PackageNotFoundError:
        return False
    return True


def tracing_of(settings: Settings) -> "Tracing | None":
    """The exporter of spans; None without a collector."""
    if settings.otlp_endpoint is None:
        return None
    if not is_installed():
        raise StartupError(WITHOUT_OPENTELEMETRY)
    from service.api.tracing import Tracing

    return Tracing(settings.otlp_endpoint)
