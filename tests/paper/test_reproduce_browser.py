"""The page of a reproduction in a browser: complete, without requests and without errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from reproduction_runs import TINY, make_reader, write_runs

from fedopt_paper.artifacts.registry import ARTIFACTS
from fedopt_paper.plan import PlannedRun
from fedopt_paper.reproduce import ReproduceOptions, reproduce

TASK = "emnist_cr"
# One artifact for each layout of tables and figures: fonts of the PDF files take seconds for each.
NAMES = ("performance", "decay", "curves_emnist_cr", "heatmaps_emnist_cr")

pytestmark = pytest.mark.xdist_group("reproduction page")  # one process of the test session writes it


def accuracy(run: PlannedRun) -> float | None:
    rate = run.point["client_lr"]
    return None if rate > -1.5 else 0.5 + rate / 10


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every artifact of one task from runs written by hand, some of which diverged."""
    out = tmp_path_factory.mktemp("page") / "with spaces & <marks>"
    reader = make_reader(out, TASK)
    for name in NAMES:
        write_runs(reader, ARTIFACTS[name].runs(reader.plan), accuracy)
    for name in NAMES:
        reproduce(ReproduceOptions(name, TINY, out, "synthetic", TASK))
    return out


@pytest.fixture
def page(browser: Any, reproduction: Path) -> Any:
    browser.get((reproduction / "index.html").as_uri())
    return browser


def elements(browser: Any, selector: str) -> list[Any]:
    return list(browser.find_elements("css selector", selector))


def ids_in(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0] + ' [id]')].map(e => e.id)"
    return list(browser.execute_script(script, selector))


def test_every_artifact_has_a_section_a_figure_and_a_table(page: Any) -> None:
    assert [section.get_attribute("id") for section in elements(page, "section")] == [
        name for name in ARTIFACTS if name in NAMES
    ]
    for name in NAMES:
        (figure,) = elements(page, f"#{name} .figure")
        assert figure.get_attribute("role") == "img" and "synthetic" in figure.get_attribute("aria-label")
        (svg,) = elements(page, f"#{name} .figure svg")
        assert svg.size["width"] > 300 and svg.size["height"] > 100
        assert elements(page, f"#{name} table tbody tr")
        assert "synthetic" in elements(page, f"#{name} h2")[0].text
        assert f"fedopt reproduce {name} --scale tiny" in elements(page, f"#{name} .command")[0].text
    assert len(elements(page, "nav a")) == len(NAMES)


def test_page_sends_no_request_and_logs_no_error(page: Any) -> None:
    assert page.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url.split(":")[0] for url in sent if not url.startswith("data:")] == ["file"]  # the page itself
    for name in NAMES:  # ids of figures do not collide
        assert all(part.startswith(f"{name}-") for part in ids_in(page, f"#{name} svg"))


def test_cells_link_to_their_runs_and_files_exist(page: Any) -> None:
    links = [a.get_attribute("href") for a in elements(page, "td a, section > p > a")]
    assert len(links) > 50
    for link in dict.fromkeys(links):
        path = Path(unquote(urlparse(link).path))
        assert (path / "run.json").is_file() if path.is_dir() else path.is_file()
    cells = [cell.text for cell in elements(page, "#performance tr:nth-child(2) td")]
    # the paper's client rate is -1.5 for four of the five, FedAvg's -1 diverged; SCAFFOLD's best is -1.5
    assert cells[:5] == ["35.0", "35.0", "35.0", "35.0", "diverged"]
    assert cells[5].startswith("35.0")
    bold = [len(elements(page, f"#performance tr:nth-child({row}) strong")) for row in (1, 2, 3)]
    assert bold == [3, 5, 0]


def test_page_fits_a_phone_and_supports_dark_mode(page: Any) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
    for width in (390, 360):
        metrics = {"width": width, "height": 740, "deviceScaleFactor": 2, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        is_inside = "return [...document.querySelectorAll(arguments[0])].filter(e => e.clientWidth).map(e => "
        is_inside += "e.getBoundingClientRect().left >= 0 && e.getBoundingClientRect().right <= innerWidth)"
        for selector in (".figure svg", ".scroll", "caption span"):  # wide tables scroll inside .scroll
            inside = page.execute_script(is_inside, selector)
            assert inside and all(inside), (width, selector)
        scrolls = "return [...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)"
        assert page.execute_script(scrolls)
    rgb = "return getComputedStyle(arguments[0])[arguments[1]].match(/\\d+/g).slice(0, 3).map(Number)"
    body = elements(page, "body")[0]
    assert max(page.execute_script(rgb, body, "backgroundColor")) < 60
    assert min(page.execute_script(rgb, body, "color")) > 180
    texts = elements(page, "#performance .figure svg [style*='fill: currentColor']")
    assert texts and min(page.execute_script(rgb, texts[0], "fill")) > 180


def test_tables_and_figures_can_be_focused_by_keyboard(page: Any) -> None:
    scrollable = elements(page, ".scroll, .figure")
    assert scrollable and all(element.get_attribute("tabindex") == "0" for element in scrollable)
