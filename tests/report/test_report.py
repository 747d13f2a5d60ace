"""The report page as text: what it says of runs, seeds and sweeps; files cannot write code into it."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from plotly.offline import get_plotlyjs
from typed import files_up_to
from written import write_lines, write_run, write_trial

from fedopt.analysis.heatmap import metric_scale
from fedopt.analysis.summary import compare_runs
from fedopt.errors import RunError, UserError
from fedopt.report import render_report, write_report
from fedopt.report.charts import chart_data
from fedopt.report.colours import cell_colours
from fedopt.report.line_styles import select_lines
from fedopt.runs.records import RunRecord, read_run

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
T_2 = 4.302653  # Student's t for three seeds, from the table


@pytest.fixture
def seeded(tmp_path: Path) -> list[RunRecord]:
    """Three seeds of two algorithms; at round 2 those of fedadam have 0.5, 0.6 and 0.7."""
    found = []
    for name, first in (("fedavg", 0.2), ("fedadam", 0.5)):
        for seed in range(3):
            values = (0.1, first + 0.1 * seed, 0.8)
            made = {"config": f"seed = {seed}\n", "seed": seed, "value": first + 0.1 * seed}
            found.append(write_run(tmp_path / f"{name}-{seed}", name, values, **made))
    return found


def grid(root: Path, name: str = "fedadam", taus: tuple[float, ...] = (1e-3, 1e-1)) -> list[RunRecord]:
    """A 4 x 4 grid for each tau; the best value is 0.44 at client 1, server 10, the second tau."""
    records = []
    for t, tau in enumerate(taus):
        for c in range(4):
            for s in range(4):
                rates, value = (10.0 ** (c - 3), 10.0 ** (s - 2), tau), 0.03 * (c + s) + 0.26 * t
                where = root / f"{name}-{c}{s}{t}"
                made = {"train_loss": 1.0 - 0.1 * c, "status": "diverged" if c == 0 and s == 3 else "done"}
                records.append(write_trial(where, name, rates, value, **made))
    return records


def charts(records: list[RunRecord], window: int = 1) -> dict[str, Any]:
    comparison = compare_runs(records)
    return chart_data(comparison, select_lines(comparison), window)


def page_without_plotly(records: list[RunRecord], title: str = "a page") -> str:
    return render_report(records, title).replace(get_plotlyjs(), "")


def plain(html: str) -> str:
    """The words of a piece of the page."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html))).strip()


def test_the_page_says_what_the_runs_are(three: list[RunRecord], tmp_path: Path) -> None:
    write_report(three, tmp_path / "new" / "report.html", "Three runs")
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert page == render_report(three, "Three runs")  # the same runs, the same page
    text = plain(page.replace(get_plotlyjs(), ""))
    words = ["Three runs synthetic data", "2026-11-15", "0.1.0", "1,206,590", "run --algorithm scaffold"]
    words += ["Best of 3 runs: fedyogi, with accuracy 80.0 %", "rounds to 72 %", "One seed each"]
    words += ["Results synthetic data", "Test accuracy by round synthetic data"]
    assert [word for word in words if word not in text] == []
    assert "Learning rates" not in text  # nothing was tuned
    real = [write_run(tmp_path / "real", data="femnist")]
    assert "synthetic" not in page_without_plotly(real)


def test_a_run_that_has_just_begun_is_a_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", rounds=200, metric=None, better=None).path
    write_lines(run, [])
    assert "No run has a result yet." in render_report([read_run(run)], "just started")


def test_everything_from_files_is_escaped(tmp_path: Path) -> None:
    names = "task command data message started fedopt x_sha256 params seed rounds".split()
    rates = "[client]\nlr = %s\n[server]\nlr = %s\n"
    records = []
    for at in range(16):  # a grid, so that the heat maps write names too
        config = f'{json.dumps(ATTACK)} = "{at % 2}"\nother = {json.dumps(ATTACK)}\n'
        config += rates % (10.0 ** (at % 4), 10.0 ** (at // 4))
        info = dict.fromkeys(names, ATTACK) | {"status": "done" if at else ATTACK}
        records.append(write_run(tmp_path / f"{at}<b>", ATTACK, config=config, **info))
    for some in (records[:2], records):
        page = page_without_plotly(some, ATTACK)
        assert page.count("<script") == page.count("</script") == 3
        assert "<img" not in page and "<b>" not in page
        assert "<h1>&lt;/script&gt;&lt;script&gt;alert(1)" in page
        assert all("<" not in run["name"] for run in charts(some)["runs"])


# -- curves


def test_the_charts_have_the_scaled_numbers(three: list[RunRecord]) -> None:
    metric, loss, sent = charts(three, window=2)["charts"]
    assert metric["lines"][0]["x"] == [0, 2, 4]
    assert metric["lines"][0]["y"] == pytest.approx([10, 75, 85])
    assert metric["target"] == pytest.approx(72)
    assert sent["lines"][1]["x"] == [0, 40, 80]  # scaffold, 20 MB a round
    assert loss["lines"][0]["y"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=1e-5)
    assert loss["lines"][3]["y"] == pytest.approx([1, 3 / 4, 5 / 12, 7 / 24], rel=1e-5)  # means of two


def test_several_seeds_are_one_line_with_a_band(seeded: list[RunRecord]) -> None:
    metric = charts(seeded)["charts"][0]
    line = metric["lines"][0]  # fedadam, the best
    assert [entry["name"] for entry in charts(seeded)["runs"]] == ["fedadam", "fedavg"]
    assert line["y"] == pytest.approx([10, 60, 80])
    half = T_2 * 10 / 3**0.5  # the deviation of 50, 60, 70 is 10
    assert line["half"] == pytest.approx([0, half, 0], rel=1e-5, abs=1e-9)
    assert (line["low"][1], line["high"][1]) == pytest.approx((60 - half, 60 + half), rel=1e-5)
    assert metric["lines"][1]["low"][1] == pytest.approx(30 - half, rel=1e-5)


def test_a_band_is_only_where_all_seeds_have_a_value_and_stays_within_what_is_possible(
    tmp_path: Path,
) -> None:
    runs = [
        write_run(tmp_path / name, config=f"seed = {seed}\n", status="running")
        for seed, name in enumerate("ab")
    ]
    values = ({0: 0.1, 2: 0.1, 4: 0.9}, {0: 0.1, 2: 0.9})
    for run, points in zip(runs, values, strict=True):
        write_lines(run.path, [{"round": t, "split": "test", "accuracy": v} for t, v in points.items()])
    (line,) = charts([read_run(run.path) for run in runs])["charts"][0]["lines"]
    assert line["x"] == [0, 2]
    assert (line["low"][1], line["high"][1]) == (0, 100)  # 50 +- 508


def test_a_curve_that_spans_orders_of_magnitude_has_a_logarithmic_axis(tmp_path: Path) -> None:
    run, losses = write_run(tmp_path / "run").path, (None, 2.0, None, 300.0, float("nan"), float("inf"), True)
    write_lines(run, [{"round": t, "split": "train", "loss": loss} for t, loss in enumerate(losses, 1)])
    assert charts([read_run(run)])["charts"][1]["y"]["type"] == "log"


def test_of_many_trials_the_best_of_each_algorithm_is_named_and_the_others_are_grey(tmp_path: Path) -> None:
    records = grid(tmp_path) + grid(tmp_path, "fedavg", (1.0,)) + grid(tmp_path, "fedyogi", (1e-4, 1.0, 2.0))
    metric = charts(records)["charts"][0]
    names = [run["name"].split()[0] for run in charts(records)["runs"]]
    assert sorted(names) == ["fedadam", "fedavg", "fedyogi"]
    grey = [line for line in metric["lines"] if line["run"] is None]
    assert len(grey) == 60  # of 96 - 3 trials, six of which diverged
    assert "Coloured: the best of each algorithm. Grey: 60 others. Not drawn: 33 more." in plain(
        page_without_plotly(records)
    )
    low, high = charts(records)["charts"][1]["y"]["range"]  # losses of 1, 1/2, 1/3, 1/4
    assert (low, high) == pytest.approx((0.25 - 0.05 * 0.75, 1 + 0.05 * 0.75))


# -- heat maps


def test_a_sweep_has_a_map_for_each_tau_and_a_number_for_how_easy_it_is(tmp_path: Path) -> None:
    page = page_without_plotly(grid(tmp_path))
    assert page.count('<table class="heat"') == 2
    cells = re.findall(r'<td class="(cell[^"]*)" role="gridcell" tabindex="(0|-1)"', page)
    assert len(cells) == 32
    assert [tab for _, tab in cells].count("0") == 2  # one way into each map
    assert sum("ended" in kind for kind, _ in cells) == 2  # diverged
    text = plain(page)
    # the best is 0.44; 0.44 and no other lies within 0.01 of it: 1 of 32, and 1 of 16 with its tau
    assert "fedadam 44.0 % 0, 1, tau 0.1" in text
    assert "1 of 32 3 % 1 of 16" in text
    assert "within 1 percentage point of that method's best" in text
    assert '<option value="1" selected>0.1 (the best trial)' in page
    assert text.count("synthetic data") >= 7  # badge, facts, three charts, maps, ease, results


@pytest.mark.parametrize("plan", ["{", "[]", '{"select": 3}', '{"select": "nonsense"}'])
def test_a_sweep_that_does_not_say_what_it_selected_by_is_shown_by_the_tasks_metric(
    tmp_path: Path, plan: str
) -> None:
    (tmp_path / "sweep.json").write_text(plan)
    text = plain(page_without_plotly(grid(tmp_path / "trials")))
    assert "Its colour shows the test accuracy" in text and "1 of 32 3 % 1 of 16" in text
    assert "selection criterion" not in text


def test_a_cell_tells_its_trial(tmp_path: Path) -> None:
    page = page_without_plotly(grid(tmp_path))
    (trial,) = re.findall(r"data-trial='([^']*44.0 %[^']*)'", page)
    told = json.loads(trial)
    assert told["client rate"] == "1 (10^0)" and told["server rate"] == "10 (10^1)"
    assert (told["tau"], told["accuracy"], told["train loss"]) == ("0.1", "44.0 %", "0.7")
    assert told["status"] == "done, 4 rounds"
    assert told["run"] == str(tmp_path / "fedadam-331")


@pytest.mark.parametrize(("higher", "bright"), [(True, 0.9), (False, 0.1)])
def test_brighter_is_better_whichever_way_the_metric_goes(higher: bool, bright: float) -> None:
    scale = metric_scale([0.1, 0.5, 0.9], higher)
    assert cell_colours(scale.position(bright))[0] == "#fde725"  # the bright end of viridis
    assert cell_colours(scale.position(1.0 - bright))[0] == "#440154"  # its dark end
    assert not scale.log


def test_errors_that_span_much_are_coloured_by_their_logarithm() -> None:
    scale = metric_scale([0.01, 0.1, 1.0], False)
    assert scale.log and scale.position(0.1) == pytest.approx(0.5) and scale.middle == pytest.approx(0.1)
    assert metric_scale([0.3], True).position(0.3) == 1.0


def test_what_is_written_on_a_cell_can_be_read() -> None:
    """WCAG's contrast of at least 4.5, computed here from its definition."""

    def bright(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    for step in range(101):
        colour, ink = cell_colours(step / 100)
        light, dark = sorted((bright(colour), 1.0 if ink == "#fff" else 0.0), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour


def test_a_random_search_is_not_drawn_as_a_grid(tmp_path: Path) -> None:
    records = [write_trial(tmp_path / str(at), "fedavg", (0.1 + at, 0.2 + at), 0.5) for at in range(8)]
    assert '<table class="heat' not in render_report(records, "scattered")


# -- tables and commands


def test_many_configurations_have_their_rates_as_columns_and_their_commands_folded(tmp_path: Path) -> None:
    page = page_without_plotly(grid(tmp_path))
    heads = re.findall(r"<button type=\"button\">([^<]*)</button></th>", page)
    assert heads[:5] == ["run", "client.lr", "server.lr", "server.tau", "accuracy"]
    assert "<summary>The commands of all 32 runs</summary>" in page
    assert "Diverged: 2 of 32." in page


def test_differences_between_seeds_are_said_once(seeded: list[RunRecord]) -> None:
    text = plain(page_without_plotly(seeded))
    assert "Best of 2 configurations: fedadam, with accuracy 60.0 ± 24.8 %" in text
    assert "Within noise of the best" in text
    assert "against best" in text and "fedavg 30.0 ± 24.8 % worse" in text
    assert "fedadam, seed 2" in text  # one command for each run
    assert "Settings that differ Only the algorithm differs." in text


# -- files


def test_mixed_tasks_are_refused(three: list[RunRecord], tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", task="shakespeare")
    with pytest.raises(UserError, match="one task.*emnist_cr .*, shakespeare "):
        write_report([*three, other], tmp_path / "report.html", "mixed")
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_leaves_nothing_behind(three: list[RunRecord], tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    target.mkdir(parents=True)  # a directory cannot be replaced by a file, whoever asks
    with pytest.raises(UserError, match="report.html is a directory; name a file"):
        write_report(three, target, "blocked")
    assert list(target.parent.iterdir()) == [target]
    with pytest.raises(UserError, match="run.json is a file, not a directory; choose another path"):
        write_report(three, three[0].path / "run.json" / "report.html", "below a file")
    target.rmdir()
    with files_up_to(100_000), pytest.raises(RunError, match="cannot write .*report.html: File too large"):
        write_report(three, target, "a full disk")  # which another place would not mend
    assert list(target.parent.iterdir()) == []


def test_an_interrupted_write_keeps_the_old_page(three: list[RunRecord], tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    write_report(three, target, "old")
    before = target.read_bytes()
    with mock.patch("os.replace", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write_report(three, target, "new")
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]
