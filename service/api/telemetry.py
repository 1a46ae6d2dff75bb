"""Tracing, loaded only where a setting names a collector."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from service.errors import StartupError
from service.settings import Settings

if TYPE_CHECKING:
    from service.api.tracing import Tracing

EXPORTER = "opentelemetry-exporter-otlp-proto-http"

WITHOUT_OPENTELEMETRY = (
    "TRAINCOST_OTLP_ENDPOINT needs OpenTelemetry: pip install '.[telemetry]' in the folder of traincost's source"
)


def is_installed() -> bool:
    """Whether spans could be sent."""
    try:
        version(EXPORTER)
    except PackageNotFoundError:
        return False
    return True


def tracing_of(settings: Settings) -> "Tracing | None":
    """What sends spans."""
    if settings.otlp_endpoint is None:
        return None
    if not is_installed():
        raise StartupError(WITHOUT_OPENTELEMETRY)
    from service.api.tracing import Tracing

    return Tracing(settings.otlp_endpoint)
