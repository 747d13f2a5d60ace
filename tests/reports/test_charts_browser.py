"""The charts in a browser: hover, zoom, hiding lines, scales, smoothing, downloads and copies."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from written import write_grid, write_lines, write_run, write_seeded

from fedopt.reports.page import write_report
from fedopt.runs.records import RunRecord, read_run

LEFT, RIGHT, ESCAPE = "\ue012", "\ue014", "\ue00c"  # key codes of the WebDriver protocol
ROUNDS = 40


def long_runs(root: Path) -> list[RunRecord]:
    """Two runs of 40 rounds with a large first loss. The accuracy of a is 2 t %, that of b is t %."""
    records = []
    for name, slope in (("fedadam", 2.0), ("fedavg", 1.0)):
        run = write_run(root / name, name, value=None)
        lines: list[dict[str, Any]] = [
            {"round": t, "split": "train", "loss": 900.0 if t == 1 else 2.0 / t, "bytes_total": t * 1_000_000}
            for t in range(1, ROUNDS + 1)
        ]
        lines += [{"round": t, "split": "test", "accuracy": slope * t / 100} for t in range(0, ROUNDS + 1, 4)]
        write_lines(run.path, lines)
        records.append(read_run(run.path))
    return records


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("charts")
    write_report(long_runs(root / "runs"), root / "report.html", "two runs")
    return root / "report.html"


@pytest.fixture
def page(browser: Any, page_file: Path) -> Any:
    browser.get(page_file.as_uri())
    return browser


def find(page: Any, selector: str) -> list[Any]:
    return list(page.find_elements("css selector", selector))


def read_all(page: Any, selector: str, value: str) -> list[str]:
    """Read a value of all elements at once, because a chart may be drawn again between two reads."""
    script = f"return [...document.querySelectorAll(arguments[0])].map((element) => {value})"
    return list(page.execute_script(script, selector))


def texts(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in read_all(page, selector, "element.textContent")]


def paths(page: Any, selector: str) -> list[str]:
    return read_all(page, selector, "element.getAttribute('d')")


def actions(page: Any) -> Any:
    from selenium.webdriver.common.action_chains import ActionChains

    return ActionChains(page, duration=0)


def drag(page: Any, chart: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Drag between two points of a plot, given as shares of its width and height from its centre."""
    plot = find(page, f"#{chart} .plot")[0]
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    width, height = plot.size["width"], plot.size["height"]
    (x0, y0), (x1, y1) = ((round(x * width), round(y * height)) for x, y in (start, end))
    actions(page).move_to_element_with_offset(plot, x0, y0).click_and_hold().move_to_element_with_offset(
        plot, x1, y1
    ).release().perform()


def labels(page: Any, chart: str, axis: str) -> list[float]:
    return [float(label.replace(",", "").replace("−", "-")) for label in texts(page, f"#{chart} text.{axis}")]


def points(path: str) -> list[tuple[float, float]]:
    """The points of a path of straight lines: M1 2L3 4."""
    pairs = [part.split() for part in path.replace("M", "L").rstrip("Z").split("L")[1:]]
    return [(float(x), float(y)) for x, y in pairs]


def area(page: Any, chart: str) -> dict[str, float]:
    return dict(page.execute_script("return scales.get(arguments[0]).area", chart))


def test_values_are_mapped_to_pixels(browser: Any, three: list[RunRecord], tmp_path: Path) -> None:
    write_report(three, tmp_path / "page.html", "three runs")
    browser.get((tmp_path / "page.html").as_uri())
    plot, best = area(browser, "metric-by-round"), points(paths(browser, "#metric-by-round .line")[0])
    left, right, top, bottom = (plot[side] for side in ("left", "right", "top", "bottom"))
    assert [x for x, _ in best] == pytest.approx([left, (left + right) / 2, right], abs=0.1)
    height = bottom - top  # 10, 78 and 85 %: the axis covers 10 to 85 with a margin of 4 % on both sides
    expected = [bottom - height * (value - 7) / 81 for value in (10, 78, 85)]
    assert [y for _, y in best] == pytest.approx(expected, abs=0.1)
    (target,) = paths(browser, "#metric-by-round .target")
    at = float(target.split()[1].split("H")[0])
    assert at == pytest.approx(bottom - height * (76.5 - 7) / 81, abs=0.1)
    assert labels(browser, "metric-by-round", "y") == [20, 40, 60, 80]
    assert labels(browser, "metric-by-round", "x") == [0, 1, 2, 3, 4]  # rounds are whole numbers
    assert len(find(browser, "#metric-by-round .marker")) == 9


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("linearTicks(0, 21, 5)", [0, 5, 10, 15, 20]),
        ("linearTicks(0.9, 3.4, 4)", [1, 2, 3]),
        ("logTicks(0.5, 2000)", [1, 10, 100, 1000]),
        ("logTicks(1.5, 30)", [2, 5, 10, 20]),
        ("formatTicks([0, 0.5, 1], false)", ["0.0", "0.5", "1.0"]),
        ("formatTicks([0, 2500], false)", ["0", "2,500"]),
        ("formatTicks([1e-5, 0.01, 100], true)", ["1e-5", "0.01", "100"]),
        ("valueRange([], false)", [0, 1]),
        ("valueRange([0, 100], false)", [-4, 104]),
        ("valueRange([-1, 0, 1], true)", [0.5, 2]),
    ],
)
def test_ticks(page: Any, call: str, values: list[Any]) -> None:
    assert page.execute_script(f"return {call}") == values


def test_bands_are_those_of_the_points_and_end_at_the_axis(browser: Any, tmp_path: Path) -> None:
    """The band is the confidence interval of each point, not of the moving average."""
    write_report(write_seeded(tmp_path / "runs"), tmp_path / "page.html", "seeds")
    browser.get((tmp_path / "page.html").as_uri())
    bands, lines = (paths(browser, f"#metric-by-round .{part}") for part in ("band", "line"))
    assert len(bands) == 2 and all(band.endswith("Z") for band in bands)
    browser.execute_script("viewOf(charts[0]).window = 2; draw(charts[0])")
    assert paths(browser, "#metric-by-round .band") == bands
    assert paths(browser, "#metric-by-round .raw") == lines != paths(browser, "#metric-by-round .line")
    clip = read_all(browser, "#metric-by-round clipPath rect", "Number(element.getAttribute('x'))")
    assert clip == [area(browser, "metric-by-round")["left"]]


def test_bad_trials_do_not_flatten_the_losses_of_named_lines(browser: Any, tmp_path: Path) -> None:
    write_report(write_grid(tmp_path / "runs"), tmp_path / "page.html", "a grid")
    browser.get((tmp_path / "page.html").as_uri())
    enlarge = (
        "for (const line of charts[1].lines) if (line.entry === null) line.y = line.y.map((v) => 1e6 * v);"
    )
    browser.execute_script(enlarge + "viewOf(charts[1]).window = 1; draw(charts[1])")
    (line,) = paths(browser, "#loss-by-round .line")
    assert min(y for _, y in points(line)) < area(browser, "loss-by-round")["top"] + 20


def test_values_appear_anywhere_over_the_plot(page: Any) -> None:
    plot = find(page, "#metric-by-round .plot")[0]
    for share in (-0.3, 0.0, 0.4):  # of the height; the horizontal position is that of round 20
        centre = page.execute_script("const s = scales.get('metric-by-round'); return s.x.position(20)")
        offset = round(centre - plot.size["width"] / 2)
        actions(page).move_to_element_with_offset(plot, offset, round(share * plot.size["height"])).perform()
        (tip,) = texts(page, "#metric-by-round .tip")
        assert tip == "round 20fedadam40.0 %fedavg20.0 %"  # best first
    actions(page).move_to_element(find(page, "h1")[0]).perform()
    assert find(page, ".tip") == []


def test_arrow_keys_move_between_points(page: Any) -> None:
    plot = find(page, "#metric-by-round .plot")[0]
    plot.send_keys(LEFT)
    assert texts(page, ".tip p") == ["round 40"]
    plot.send_keys(LEFT)
    assert texts(page, ".tip p") == ["round 36"]
    plot.send_keys(RIGHT)
    assert texts(page, ".tip p") == ["round 40"]


def test_zoom_survives_hiding_a_line_and_can_be_reset(page: Any) -> None:
    before = labels(page, "metric-by-round", "x")
    assert (before[0], before[-1]) == (0, 40)
    drag(page, "metric-by-round", (-0.1, 0.0), (0.2, 0.0))
    zoomed = labels(page, "metric-by-round", "x")
    assert 10 < zoomed[0] and zoomed[-1] < 32
    assert find(page, ".tip") == []  # that of the last position would name a round outside
    find(page, '#metric-by-round .legend [data-line="fedavg"]')[0].click()
    assert labels(page, "metric-by-round", "x") == zoomed
    assert [len(find(page, f"#{name} .line")) for name in ("metric-by-round", "loss-by-round")] == [1, 1]
    find(page, '#metric-by-round [data-do="reset"]')[0].click()
    assert labels(page, "metric-by-round", "x") == before
    assert not find(page, '#metric-by-round [data-do="reset"]')[0].is_displayed()


def test_box_zoom_limits_both_axes_and_escape_resets_it(page: Any) -> None:
    before = labels(page, "metric-by-round", "y")
    drag(page, "metric-by-round", (-0.2, -0.1), (0.2, 0.2))
    zoomed = labels(page, "metric-by-round", "y")
    assert min(zoomed) > min(before) and max(zoomed) < max(before)
    find(page, "#metric-by-round .plot")[0].send_keys(ESCAPE)
    assert labels(page, "metric-by-round", "y") == before


def test_double_click_shows_one_line_and_then_all(page: Any) -> None:
    entry = find(page, '#metric-by-round .legend [data-line="fedadam"]')[0]
    pressed = "return [...document.querySelectorAll('.legend button')].map((b) => b.ariaPressed)"
    actions(page).double_click(entry).perform()
    assert page.execute_script(pressed) == ["true", "false"] * 3
    assert len(find(page, "#loss-by-round .line")) == 1
    actions(page).double_click(entry).perform()
    assert page.execute_script(pressed) == ["true"] * 6


def test_scale_is_logarithmic_after_a_large_first_loss_and_can_be_switched(page: Any) -> None:
    switch = find(page, '#loss-by-round [data-do="log"]')[0]
    assert switch.get_attribute("aria-pressed") == "true"  # losses from 900 to 0.05
    assert labels(page, "loss-by-round", "y") == [0.1, 1, 10, 100, 1000]
    switch.click()
    assert switch.get_attribute("aria-pressed") == "false"
    ticks = labels(page, "loss-by-round", "y")
    assert ticks[0] == 0 and ticks[1] - ticks[0] == pytest.approx(ticks[-1] - ticks[-2])


def test_smoothing_keeps_the_raw_line_behind(page: Any) -> None:
    from selenium.webdriver.support.select import Select

    chosen = Select(find(page, '#metric-by-round [data-do="smooth"]')[0])
    assert chosen.first_selected_option.text == "off" and find(page, "#metric-by-round .raw") == []
    lines = paths(page, "#metric-by-round .line")
    chosen.select_by_visible_text("5")
    assert paths(page, "#metric-by-round .raw") == lines
    smooth = page.execute_script("return scales.get('metric-by-round').lines[0].y")
    assert texts(page, "#metric-by-round .smoothnote") == ["Mean of the last 5 points. Faint: each point."]
    means = [sum(range(max(0, at - 4), at + 1)) * 8 / min(5, at + 1) for at in range(11)]  # of 0, 8, 16, ...
    assert smooth == pytest.approx(means)


def test_chart_can_be_downloaded_as_csv_and_png(page: Any, tmp_path: Path) -> None:
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    find(page, '#metric-by-round .legend [data-line="fedavg"]')[0].click()
    find(page, '#metric-by-round [data-do="csv"]')[0].click()
    rows = list(csv.reader(downloaded(tmp_path / "metric-by-round.csv").decode().splitlines()))
    assert rows[0] == ["line", "Round", "Test accuracy (%)", "low", "high"]
    assert rows[1:] == [["fedadam", str(t), str(2 * t), "", ""] for t in range(0, 41, 4)]
    find(page, '#metric-by-round [data-do="png"]')[0].click()
    image = downloaded(tmp_path / "metric-by-round.png")
    width, height = (int.from_bytes(image[at : at + 4]) for at in (16, 20))  # the header of a PNG file
    assert image.startswith(b"\x89PNG") and width > 1200 and height > 800
    from matplotlib.image import imread

    pixels = imread(tmp_path / "metric-by-round.png")[:, :, :3]
    blue = (0x2A / 255, 0x7F / 255, 0xC4 / 255)  # the line of fedadam; that of fedavg is hidden
    brown = (0x9A / 255, 0x74 / 255, 0x00 / 255)
    drawn, hidden = ((abs(pixels - colour).max(axis=2) < 0.02) for colour in (blue, brown))
    assert drawn[height // 4 : height // 2, width * 3 // 5 :].sum() > 100 and not hidden.any()
    assert page.get_log("browser") == []


def downloaded(file: Path) -> bytes:
    """Wait for a complete file."""
    wait_until(lambda: file.exists() and file.stat().st_size > 0)
    return file.read_bytes()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_commands_and_results_can_be_copied(page: Any) -> None:
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})

    def copied(selector: str) -> str:
        button = find(page, selector)[0]
        button.click()
        wait_until(lambda: button.text == "Copied")
        script = (
            "const done = arguments[0]; navigator.clipboard.readText().then(done, (e) => done(String(e)))"
        )
        return page.execute_async_script(script)

    assert copied(".run button") == "fedopt run --algorithm fedadam"
    heads, first, second = (row.split("\t") for row in copied('[data-copy="results-table"]').split("\n"))
    assert heads[:2] == ["run", "accuracy"]
    assert (first[0], second[0]) == ("fedadam", "fedavg") and first[1].replace("\xa0", " ") == "80.0 %"
