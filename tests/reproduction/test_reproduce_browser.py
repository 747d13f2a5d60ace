"""The reproduction's page in a real browser: everything is there, nothing is fetched, no error is logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from paperruns import TINY, study, write_all

from fedopt.reproduction.artifacts import ARTIFACTS
from fedopt.reproduction.reproduce import Request, reproduce
from fedopt.reproduction.study import Spec

TASKS = ("emnist_cr",)
NAMES = ("performance", "learning_rates", "tau_values", "decay", "datasets", "curves_emnist_cr")
NAMES += ("heatmaps_emnist_cr", "server_rates", "tau")


def accuracy(spec: Spec) -> float | None:
    rate = spec.at["client_lr"]
    return None if rate > -1.5 else 0.5 + rate / 10


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every artifact of one task, from runs written by hand; some diverged."""
    out = tmp_path_factory.mktemp("page") / "a place with spaces & <marks>"
    made = study(out, TASKS)
    for name in NAMES:
        specs = ARTIFACTS[name].specs(made)
        write_all(made, specs, accuracy)
    for name in NAMES:
        reproduce(Request(name, TINY, out, "synthetic", ",".join(TASKS)))
    return out


@pytest.fixture
def opened(browser: Any, place: Path) -> Any:
    browser.get((place / "index.html").as_uri())
    return browser


def elements(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def ids_in(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0] + ' [id]')].map(e => e.id)"
    return list(browser.execute_script(script, selector))


def test_every_artifact_has_a_section_a_drawn_figure_and_a_table(opened: Any) -> None:
    assert [section.get_attribute("id") for section in elements(opened, "section")] == [
        name for name in ARTIFACTS if name in NAMES
    ]
    for name in NAMES:
        (figure,) = elements(opened, f"#{name} .figure svg")
        assert figure.size["width"] > 300 and figure.size["height"] > 100
        assert figure.get_attribute("role") == "img" and "synthetic" in figure.get_attribute("aria-label")
        assert elements(opened, f"#{name} table tbody tr")
        assert "synthetic" in elements(opened, f"#{name} h2")[0].text
        assert f"fedopt reproduce {name} --scale tiny" in elements(opened, f"#{name} .again")[0].text
    assert len(elements(opened, "nav a")) == len(NAMES)


def test_nothing_is_fetched_and_no_error_is_logged(opened: Any) -> None:
    assert opened.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url.split(":")[0] for url in sent if not url.startswith("data:")] == ["file"]  # itself
    for name in NAMES:  # figures do not take each other's parts
        assert all(part.startswith(f"{name}-") for part in ids_in(opened, f"#{name} svg"))


def test_cells_lead_to_their_runs_and_the_files_are_there(opened: Any) -> None:
    links = [a.get_attribute("href") for a in elements(opened, "td a, section > p > a")]
    assert len(links) > 50
    for link in dict.fromkeys(links):
        path = Path(unquote(urlparse(link).path))
        assert (path / "run.json").is_file() if path.is_dir() else path.is_file()
    cells = [cell.text for cell in elements(opened, "#performance tr:nth-child(2) td")]
    # the paper's client rate is -1.5 for four of the five, FedAvg's -1 diverged; SCAFFOLD's best is -1.5
    assert cells[:5] == ["35.0", "35.0", "35.0", "35.0", "diverged"]
    assert cells[5].startswith("35.0")
    bold = [len(elements(opened, f"#performance tr:nth-child({row}) strong")) for row in (1, 2, 3)]
    assert bold == [3, 5, 0]


def test_the_page_fits_a_phone_and_follows_the_dark(opened: Any) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    for width in (390, 360):
        metrics = {"width": width, "height": 740, "deviceScaleFactor": 2, "mobile": True}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert opened.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        whole = "return [...document.querySelectorAll(arguments[0])].filter(e => e.clientWidth).map(e => "
        whole += "e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= innerWidth)"
        for selector in (
            ".figure svg",
            ".scroll",
            "caption span",
        ):  # tables scroll in theirs
            seen = opened.execute_script(whole, selector)
            assert seen and all(seen), (width, selector)
        scrolls = "return [...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
        assert opened.execute_script(scrolls)
    light = "return getComputedStyle(arguments[0])[arguments[1]].match(/\\d+/g).slice(0, 3).map(Number)"
    body = elements(opened, "body")[0]
    assert max(opened.execute_script(light, body, "backgroundColor")) < 60
    assert min(opened.execute_script(light, body, "color")) > 180
    words = elements(opened, "#performance .figure svg [style*='fill: currentColor']")
    assert words and min(opened.execute_script(light, words[0], "fill")) > 180  # the figure's ink too


def test_the_tables_and_figures_can_be_reached_by_keyboard(opened: Any) -> None:
    scrolled = elements(opened, ".scroll, .figure")
    assert scrolled and all(element.get_attribute("tabindex") == "0" for element in scrolled)
