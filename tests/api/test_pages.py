"""Files that the pages load, and the sites that may frame the page at /."""

import asyncio

import httpx
import pytest

from service.api.pages import ASSETS, MANIFESTS, WEB
from service.app import create_app
from service.catalogue import shipped_catalogue
from service.settings import Settings
from tests.api.asking import Ask


def _policy(settings: Settings, path: str) -> str:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(settings, shipped_catalogue()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path)

    return asyncio.run(asked()).headers["content-security-policy"]


def test_everything_that_a_page_loads_is_served_and_kept_fresh(ask: Ask) -> None:
    assert {"style.css", "docs.js", "icon.svg", "page/page.js", "vendor/echarts.common.min.js"} <= ASSETS
    for name in ASSETS:
        answer = ask("GET", f"/web/{name}")
        assert answer.content == (WEB / name).read_bytes()
        assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "name", ["vendor/manifest.json", "page", "page/", "", "guide/index.html", "page/%2e%2e/docs.html"]
)
def test_nothing_else_is_served(ask: Ask, name: str) -> None:
    assert ask("GET", f"/web/{name}").status_code == 404


@pytest.mark.parametrize("name", sorted(name for name in ASSETS if not name.startswith(("vendor/", "examples/"))))
def test_what_pages_load_names_no_other_host(ask: Ask, name: str) -> None:
    text = ask("GET", f"/web/{name}").text.replace("http://www.w3.org/2000/svg", "")
    assert "://" not in text


def test_manifests_are_served_as_they_are(ask: Ask) -> None:
    assert len(MANIFESTS) == 6
    for name, path in MANIFESTS.items():
        answer = ask("GET", f"/guide/kubernetes/{name}")
        assert answer.content == path.read_bytes()
        assert answer.headers["content-type"].startswith("text/plain")
    refused = ask("GET", "/guide/kubernetes/config.yaml")
    assert refused.status_code == 404
    assert "api.yaml" in refused.json()["detail"]
    assert ask("GET", "/guide/kubernetes").headers["content-security-policy"]


def test_nobody_frames_a_page_unless_a_setting_says_so() -> None:
    assert "frame-ancestors 'none'" in _policy(Settings(), "/")
    framed = Settings(frame_ancestors=("https://tools.example.org", "https://wiki.example.org"))
    assert "frame-ancestors https://tools.example.org https://wiki.example.org;" in _policy(framed, "/?embed=1")
    assert "frame-ancestors 'none'" in _policy(framed, "/docs")


def test_embed_is_one_or_nought(ask: Ask) -> None:
    assert ask("GET", "/?embed=1").status_code == 200
    refused = ask("GET", "/?embed=yes")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["parameter"] == "embed"
