"""The report as a file: content, escaping and atomic writing."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest
from pages import by_class, parse_page, section, text
from typed import files_up_to
from written import write_lines, write_run, write_seeded

from fedopt.errors import ConfigError, RunError, UserError
from fedopt.reports.page import render_report, write_report
from fedopt.runs.records import RunRecord, read_run

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def test_page_has_header_charts_tables_and_commands(three: list[RunRecord], tmp_path: Path) -> None:
    write_report(three, tmp_path / "new" / "report.html", "Three runs")
    html = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert html == render_report(three, "Three runs")  # the same runs give the same page
    assert html.startswith("<!doctype html>\n")
    page = parse_page(html)
    assert (text(page.find(".//title")), text(page.find(".//h1"))) == ("Three runs", "Three runs")
    assert [text(h) for h in page.iter("h2")] == [
        "Test accuracy by round synthetic data",
        "Train loss by round synthetic data",
        "Test accuracy by communication synthetic data",
        "Results synthetic data",
        "Settings that differ",
        "Commands",
    ]
    (facts,) = by_class(page, "facts")
    assert {text(d.find("dt")): text(d.find("dd")) for d in facts} == {
        "Task": "emnist_cr",
        "Data": "synthetic data",
        "Runs": "3",
        "Rounds": "4",
        "Seed": "0",
        "Parameters": "1,206,590",
        "Date": "2026-11-15",
        "fedopt": "0.1.0",
    }
    names = ("fedyogi", "scaffold", "fedavg")
    assert [text(code) for code in page.iter("code")] == [f"fedopt run --algorithm {name}" for name in names]


def test_page_of_real_data_is_not_marked_as_synthetic(tmp_path: Path) -> None:
    page = parse_page(render_report([write_run(tmp_path / "real", data="femnist")], "real"))
    assert by_class(page, "badge") == by_class(page, "tag") == []
    assert "synthetic" not in text(page.find(".//main")) + text(page.find(".//header"))


def test_run_without_results_is_rendered(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", rounds=200, metric=None, better=None).path
    write_lines(run, [])
    page = parse_page(render_report([read_run(run)], "just started"))
    assert text(by_class(page, "lead")[0]) == "No run has a result yet."


def test_all_text_from_files_is_escaped(tmp_path: Path) -> None:
    names = "task command data message started fedopt x_sha256 metric".split()
    rates = "[client]\nlr = %s\n[server]\nlr = %s\n"
    records = []
    for at in range(16):  # a grid, so that the page has heat maps
        config = f'{json.dumps(ATTACK)} = "{at % 2}"\nother = {json.dumps(ATTACK)}\n'
        config += rates % (10.0 ** (at % 4), 10.0 ** (at // 4))
        info = dict.fromkeys(names, ATTACK) | {"status": "done" if at else ATTACK}
        records.append(write_run(tmp_path / f"{at}<b>", ATTACK, config=config, **info))
    for some in (records[:2], records):
        page = parse_page(render_report(some, ATTACK))
        assert len(list(page.iter("script"))) == 3
        assert list(page.iter("img")) == list(page.iter("b")) == []
        assert text(page.find(".//h1")) == ATTACK
        assert text(page.find(".//code")).startswith("</script>")
        data = json.loads(page.find(".//script[@id='report-data']").text)
        assert len(data) >= 3


def test_each_seed_has_its_command(tmp_path: Path) -> None:
    commands = section(parse_page(render_report(write_seeded(tmp_path), "seeds")), "Commands")
    expected = [f"{name}, seed {seed}" for name in ("fedadam", "fedavg") for seed in range(3)]
    assert [text(name) for name in commands.iter("h3")] == expected


def test_command_shows_message_and_checksum(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", command=None, message="out of memory", x_sha256="ab12", status="failed")
    commands = section(parse_page(render_report([run], "failed")), "Commands")
    assert text(by_class(commands, "bad")[0]) == "out of memory"
    assert text(commands.find(".//code")) == "(the command was not recorded)"
    assert text(by_class(commands, "quiet")[-1]).endswith(" ab12")
    assert text(by_class(commands, "failed")[0]) == "failed, round 4 of 4"


def test_runs_of_several_tasks_are_rejected(three: list[RunRecord], tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", task="shakespeare")
    with pytest.raises(ConfigError) as caught:
        write_report([*three, other], tmp_path / "report.html", "mixed")
    assert caught.value.keys == ("task",)
    assert not (tmp_path / "report.html").exists()


def test_failed_write_leaves_no_files(three: list[RunRecord], tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    target.mkdir(parents=True)
    with pytest.raises(UserError, match="report.html is a directory; name a file"):
        write_report(three, target, "blocked")
    assert list(target.parent.iterdir()) == [target]
    with pytest.raises(UserError, match="run.json is a file, not a directory; choose another path"):
        write_report(three, three[0].path / "run.json" / "report.html", "below a file")
    target.rmdir()
    with files_up_to(20_000), pytest.raises(RunError, match="cannot write .*report.html: File too large"):
        write_report(three, target, "a full disk")
    assert list(target.parent.iterdir()) == []


def test_interrupted_write_keeps_the_old_page(three: list[RunRecord], tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    write_report(three, target, "old")
    before = target.read_bytes()
    with mock.patch("os.replace", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write_report(three, target, "new")
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]
