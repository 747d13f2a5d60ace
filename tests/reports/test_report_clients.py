"""The section of the report on clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_clients import CLIENTS, make_task, train
from pages import parse_page, text
from written import write_run

from fedopt.errors import RunDirectoryError
from fedopt.reports.clients import clients_section
from fedopt.reports.page import render_report
from fedopt.runs.records import read_run

SUMMARY: dict[str, Any] = {
    "clients": 40,
    "examples": 400,
    "sizes": {
        "clients": 40,
        "percentiles": {"0": 1, "5": 2, "25": 5, "50": 9, "75": 12, "95": 30, "100": 31},
        "edges": [1, 11, 32],
        "counts": [30, 10],
    },
    "labels": {
        "clients": 20,
        "names": ["cat", "<dog>"],
        "examples": [30, 10],
        "per_client": {"0": 1, "5": 1, "25": 1, "50": 2, "75": 2, "95": 2, "100": 2},
        "shown": {"a": [4, 0], "b": [1, 3]},
    },
}


def test_figures_by_hand(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run")._replace(clients=SUMMARY)
    section = clients_section([record])
    sizes, labels, clients = section.figures
    assert [(box.column, box.top, box.height) for box in sizes.boxes] == [
        (0, 0, 1),
        (1, pytest.approx(2 / 3), pytest.approx(1 / 3)),
    ]
    assert [box.tooltip for box in sizes.boxes] == [
        "1 to 10 examples: 30 clients",
        "11 to 31 examples: 10 clients",
    ]
    assert [box.tooltip for box in labels.boxes] == ["label cat: 75.0 %", "label <dog>: 25.0 %"]
    assert [(box.column, box.top) for box in clients.boxes] == [(0, 0), (1, 0), (1, 0.5)]
    assert [box.strength for box in clients.boxes] == [1, 0.5, pytest.approx(0.75**0.5, abs=1e-3)]
    for fact in ("40 training clients with 400 examples", "median 9", "2 to 30", "20 sampled clients"):
        assert fact in section.lead


def test_section_is_rendered_and_escaped(tmp_path: Path) -> None:
    html = render_report([write_run(tmp_path / "run")._replace(clients=SUMMARY)], "title")
    page = parse_page(html)
    assert "Clients" in [text(h).split()[0] for h in page.iter("h2")]
    assert len([e for e in page.iter() if e.tag.endswith("rect")]) >= 2 + 2 + 3
    assert "<dog>" not in html and "&lt;dog&gt;" in html


@pytest.mark.parametrize("damage", [{}, {"clients": "x"}, {**SUMMARY, "sizes": {}}, {**SUMMARY, "labels": 3}])
def test_damaged_or_missing_summary_is_left_out(tmp_path: Path, damage: dict[str, Any]) -> None:
    record = write_run(tmp_path / "run")
    assert clients_section([record]) is None
    assert clients_section([record._replace(clients=damage)]) is None


def test_run_with_most_clients_is_shown(tmp_path: Path) -> None:
    """Centralized training has a single client with all examples."""
    run = write_run(tmp_path / "run")
    one = {"clients": 1, "examples": 400}
    section = clients_section([run._replace(clients=one), run._replace(clients=SUMMARY)])
    assert section.lead.startswith("40 training clients") and section.has_other_data


def test_run_records_its_clients_once(tmp_path: Path) -> None:
    train(make_task(), out=tmp_path / "run")
    file = tmp_path / "run" / "data.json"
    summary = json.loads(file.read_text())
    assert summary["clients"] == len(CLIENTS) and summary["examples"] == 12 * len(CLIENTS)
    counts = np.sum([np.bincount(labels, minlength=3) for _, labels in CLIENTS.values()], axis=0)
    assert summary["labels"]["examples"] == counts.tolist()
    assert "Clients" in render_report([read_run(tmp_path / "run")], "title")
    before = file.read_bytes()
    train(make_task(), rounds=3, out=tmp_path / "run")
    assert file.read_bytes() == before


@pytest.mark.parametrize("damage", [("12", "13"), ("{", "")])
def test_damaged_summary_is_refused_and_written_again_once_it_is_removed(
    damage: tuple[str, str], tmp_path: Path
) -> None:
    train(make_task(), out=tmp_path / "run")
    file = tmp_path / "run" / "data.json"
    before = file.read_text()
    file.write_text(before.replace(*damage, 1))
    with pytest.raises(RunDirectoryError):
        read_run(tmp_path / "run")
    file.unlink()
    train(make_task(), rounds=3, out=tmp_path / "run")
    assert file.read_text() == before


def test_resumed_run_of_an_older_version_gets_its_summary(tmp_path: Path) -> None:
    train(make_task(), out=tmp_path / "run")
    (tmp_path / "run" / "data.json").unlink()
    train(make_task(), rounds=3, out=tmp_path / "run")
    assert read_run(tmp_path / "run").clients is not None
