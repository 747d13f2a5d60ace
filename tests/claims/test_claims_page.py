"""The page of the claims is what the generator writes from the stored results."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from claims.markdown import difference_text
from claims.page import FIGURES, PAGE, build_page, sections
from claims.plan import plan_entries
from claims.results import EntryResult, load_results
from claims.section import Section, divergence

from fedopt.reports import Interval
from fedopt.runs.records import RunRecord

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


def test_no_claim_holds_because_of_synthetic_data(content: list[Section]) -> None:
    synthetic = [v for s in content for data, v in s.verdicts.items() if "synthetic" in data]
    assert len(synthetic) >= 6
    assert all(v.status != "holds" and "the data is synthetic" in v.reason for v in synthetic)


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
    assert len(anchors) == len(content) + 1  # and the terms
    assert set(anchors) <= headings


def test_blocks_are_separated_by_empty_lines() -> None:
    """Markdown shows a table, a figure or a paragraph that begins in bold only after an empty line."""
    lines = PAGE.read_text().splitlines()
    for before, line in pairwise(lines):
        if line.startswith(("|", "![", "**", "<details>")) and before:
            assert line.startswith("|") and before.startswith("|"), line


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


@pytest.mark.parametrize(
    ("info", "losses", "expected"),
    [
        ({"status": "done"}, [2.3, 0.5, 0.4], None),
        ({"status": "done"}, [2.3, 5e27, 1e26], 20),  # finite, but the model is lost
        ({"status": "done"}, [2.3, 5e27, 0.4], None),  # it recovered
        ({"status": "done"}, [2.3, 0.5, None], 30),
        ({"status": "diverged", "rounds_done": 26}, [2.3, 0.5, 4e20], 26),
    ],
)
def test_runs_with_a_huge_training_loss_have_diverged(
    info: dict[str, object], losses: list[float | None], expected: int | None
) -> None:
    train = [{"round": 10 * n, "rounds": 10, "loss": loss} for n, loss in enumerate(losses, 1)]
    assert divergence(RunRecord(Path(), info, {}, train, [])) == expected


@pytest.mark.parametrize(
    ("mean", "text"), [(0.0123, "+1.2"), (-0.0123, "−1.2"), (0.0, "0.0"), (-0.0002, "0.0"), (0.0004, "0.0")]
)
def test_differences_have_a_sign_unless_they_are_shown_as_zero(mean: float, text: str) -> None:
    assert difference_text(Interval(mean, None, 1), "accuracy") == text
    assert difference_text(Interval(mean, 0.01, 3), "accuracy") == f"{text} ± 1.0"
