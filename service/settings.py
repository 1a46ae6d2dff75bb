"""How is this process set up? One frozen Settings, read once from the environment and the command line."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.errors import StartupError, did_you_mean, nearest

PREFIX = "TRAINCOST_"
SLIP_OF_THE_PEN = 0.9
"""Likeness above which an unknown variable is taken for a misspelt setting, not for somebody else's variable."""


def _default_database_url() -> str:
    """A file in the user's own data folder, where an installed program may write whatever folder it starts in."""
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        folder = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:
        raise StartupError("the user has no home folder to keep the database in; set TRAINCOST_DATABASE_URL") from None
    return f"sqlite:///{folder / 'traincost' / 'traincost.db'}"


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if text != "*" and (parts.scheme not in {"http", "https"} or text != f"{parts.scheme}://{parts.netloc}"):
        raise ValueError("should be * or scheme and host like https://tools.example.org, no path")
    return text


class Settings(BaseSettings):
    """Every setting, each the environment variable of its name with TRAINCOST_ before it; empty counts as absent."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, use_attribute_docstrings=True
    )

    database_url: str = Field(default_factory=_default_database_url, repr=False)
    """SQLite file (sqlite:////folder/traincost.db) or PostgreSQL (postgresql://user:password@host/name);
    where absent, the file traincost/traincost.db in the user's data folder ($XDG_DATA_HOME or ~/.local/share)."""
    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every IPv4 address of the machine."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 for any free one. (Kubernetes sets TRAINCOST_PORT itself in a namespace with a Service
    called traincost: give the pod enableServiceLinks: false.)"""
    cors_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_split)] = ()
    """Web origins that may call from a browser, separated by commas; * for any; none where absent."""
    admission_token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{16,128}$")] | None = Field(default=None, repr=False)
    """Secret part of the address of the Kubernetes webhook, 16 to 128 letters, digits, - and _; none where absent, and
    then there is no webhook."""
    frame_ancestors: Annotated[
        tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode, BeforeValidator(_split)
    ] = ()
    """Web origins that may show the page at / in a frame, separated by commas; * for any; none where absent."""
    insecure: bool = False
    """Whether to start without any key on an address that other machines reach; true or false."""
    log_level: Literal["critical", "error", "warning", "info", "debug"] = "info"
    """Least serious messages to write; debug adds a line for each request."""


def read_settings(**given: object) -> Settings:
    """The settings of this process.

    Args:
        given: settings of the command line, which win over the environment; None stands for not given

    Returns:
        the settings

    Raises:
        StartupError: a value is wrong, or a variable looks like a misspelt setting
    """
    _refuse_misspelt()
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        raise StartupError("; ".join(_said(dict(finding), chosen) for finding in error.errors())) from None


def _refuse_misspelt() -> None:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    for name in sorted(os.environ.keys() - set(known)):
        near = nearest(name, known, most=1, likeness=SLIP_OF_THE_PEN) if name.startswith(PREFIX) else []
        if near:
            raise StartupError(f"{name} is not a setting; {did_you_mean(near)}")


def _said(finding: dict[str, Any], given: dict[str, Any]) -> str:
    name, *_ = finding["loc"]
    spelled = f"--{name}" if name in given else PREFIX + str(name).upper()
    return f"{spelled}: {str(finding['msg']).removeprefix('Value error, ')}"
