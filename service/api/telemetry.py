"""Is anybody told of each request as a span? Where a setting names a collector; only then is its library loaded."""

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
    """Whether spans could be sent.

    Returns:
        true where the exporter is there, which brings the rest
    """
    try:
        version(EXPORTER)
    except PackageNotFoundError:
        return False
    return True


def tracing_of(settings: Settings) -> "Tracing | None":
    """What sends spans.

    Args:
        settings: where to

    Returns:
        it; None where no setting names a collector

    Raises:
        StartupError: one does, and what that needs is not installed
    """
    if settings.otlp_endpoint is None:
        return None
    if not is_installed():
        raise StartupError(WITHOUT_OPENTELEMETRY)
    from service.api.tracing import Tracing

    return Tracing(settings.otlp_endpoint)
