"""The documentation site builds without warnings, makes no requests to other hosts, and can be searched."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import fedopt

pytestmark = pytest.mark.xdist_group("site")  # one process of the test session builds it
ROOT = Path(__file__).resolve().parents[2]
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
# Addresses in the scripts of the theme that these pages never load, with the condition of the script.
NOT_LOADED = {
    "https://api.github.com/": "only with `repo_url`, which adds data-md-component=source",
    "https://unpkg.com/mermaid@11/dist/mermaid.min.js": "only for elements of class mermaid",
    "https://unpkg.com/resize-observer-polyfill": "only in browsers without ResizeObserver",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (built.returncode, built.stderr) == (0, ""), built.stderr
    return out


class LoadedAddresses(HTMLParser):
    """Collects the addresses that a browser loads without a click."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        names = {"link": ["href"], "a": []}.get(tag, ["src", "srcset", "data", "poster", "action"])
        if given.get("rel") not in ("next", "prev", "canonical"):  # addresses of other pages
            self.found += [given[name] or "" for name in names if name in given]


def is_foreign(address: str) -> bool:
    return re.match(r"(?i)([a-z][a-z+.-]*:)?//", address.strip()) is not None


def test_foreign_addresses_are_found() -> None:
    page = (
        '<script src="https://a.b/x.js"></script><link href=//c.d rel=stylesheet><a href="https://e.f">e</a>'
    )
    assert [address for address in LoadedAddresses(page).found if is_foreign(address)] == [
        "https://a.b/x.js",
        "//c.d",
    ]


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        html = page.read_text()
        assert [address for address in LoadedAddresses(html).found if is_foreign(address)] == [], page
        scripts = "".join(re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL))
        assert not re.search(r"(fetch|import|open|url)\W{0,3}(https?:)?//", scripts), page
        assert 'class="mermaid"' not in html and "data-md-component=source" not in html.replace('"', ""), page


def test_styles_and_scripts_load_nothing_from_other_hosts(site: Path) -> None:
    for sheet in site.rglob("*.css"):
        text = sheet.read_text()
        addresses = re.findall(r"(?:@import|url\()\s*[\"']?([^\"')]*)", text)
        assert [address for address in addresses if is_foreign(address)] == [], sheet
    unknown = set()
    for script in site.rglob("*.js"):
        addresses = re.findall(r"[\"'`](https?://[\w./@-]+)", script.read_text())  # without comments
        unknown |= {address for address in addresses if not address.startswith(tuple(NOT_LOADED))}
    assert {address for address in unknown if "//www.w3.org/" not in address} == set()  # name spaces


def test_loaded_files_exist(site: Path) -> None:
    for page in site.rglob("*.html"):
        for address in LoadedAddresses(page.read_text()).found:
            if not address.startswith("data:"):
                path = re.sub(r"[?#].*", "", address)
                folder = site if path.startswith("/") else page.parent  # addresses of 404.html are absolute
                assert (folder / path.lstrip("/")).exists(), f"{page.name}: {address}"


def test_pages_show_the_version(site: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"fedopt {version}" in (site / "index.html").read_text()


def test_cells_have_the_name_of_their_column(site: Path) -> None:
    assert '<td data-column="authors\' code">' in (site / "deviations.html").read_text()


def test_reference_describes_every_public_name(site: Path) -> None:
    page = (site / "reference" / "python.html").read_text()
    missing = [name for name in fedopt.__all__ if f'id="fedopt.{name}"' not in page]
    assert missing == ["__version__", "partition"]
    functions = [f"fedopt.partition.{name}" for name in fedopt.partition.__all__]
    assert [name for name in functions if f'id="{name}"' not in page] == []


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The address of a server for the site."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def requests(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if not url.startswith(("data:", "blob:"))]


def test_browser_requests_only_the_site_and_finds_pages(browser: Any, address: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    for page in ("algorithm-2", "reference/python"):
        browser.get(f"{address}/{page}.html")
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= PHONE["width"], page  # wide tables scroll inside the page
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(f"{address}/index.html?q=dirichlet")
    found = lambda driver: driver.find_elements("css selector", ".md-search-result__item")  # noqa: E731
    results = WebDriverWait(browser, 60).until(found)
    assert any("partition" in (result.get_attribute("innerHTML") or "") for result in results)
    urls = requests(browser)
    assert len(urls) > 10 and [url for url in urls if not url.startswith(address)] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
