"""The page of the claims is what the generator writes from the stored results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from claims.page import FIGURES, PAGE, build_page, sections
from claims.plan import plan_entries
from claims.results import EntryResult, load_results
from claims.section import Section

pytestmark = pytest.mark.xdist_group("claims page")  # one process of the test session computes the sections


@pytest.fixture(scope="module")
def results() -> dict[str, EntryResult]:
    return load_results()


@pytest.fixture(scope="module")
def content(results: dict[str, EntryResult]) -> list[Section]:
    """The sections of the page; read-only."""
    return sections(results)


def test_page_is_up_to_date(results: dict[str, EntryResult], content: list[Section]) -> None:
    """After a change of results or text: make claims-page"""
    assert PAGE.read_text() == build_page(results, content)


def test_every_verdict_cites_a_number(content: list[Section]) -> None:
    verdicts = [verdict for section in content for verdict in section.verdicts.values()]
    assert len(verdicts) >= 10
    assert all(re.search(r"\d", verdict.reason) for verdict in verdicts)


def test_figures_of_the_page_exist(content: list[Section]) -> None:
    names = re.findall(r"figures/claims/([\w-]+\.svg)", PAGE.read_text())
    assert sorted(names) == sorted(f"{name}.svg" for s in content for name in s.figures)
    assert all((FIGURES / name).is_file() for name in names)


def test_links_of_the_summary_lead_to_headings(content: list[Section]) -> None:
    text = PAGE.read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", line.removeprefix("## ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    anchors = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(anchors) == len(content)
    assert set(anchors) <= headings


def test_sections_are_in_the_order_of_their_numbers(content: list[Section]) -> None:
    numbers = [int(number) for number in re.findall(r"^## (\d+)\.", PAGE.read_text(), flags=re.MULTILINE)]
    assert numbers == list(range(1, len(content) + 1))


def test_entries_of_the_plan_have_unique_names_and_results_belong_to_them(
    results: dict[str, EntryResult],
) -> None:
    names = [entry.name for entry in plan_entries(results)]
    assert len(names) == len(set(names))
    assert set(results) <= set(names)


def test_page_without_results_states_that_nothing_has_run() -> None:
    content = sections({})
    for section in content:
        assert {verdict.status for verdict in section.verdicts.values()} <= {"not run yet", "measured"}
    assert "not run yet" in build_page({}, content)


def test_page_has_no_paths_of_the_machine() -> None:
    assert not re.search(r"/(tmp|home|root)/", PAGE.read_text())
    assert Path(PAGE).name == "claims.md"
