"""Reading run directories, the numbers that compare them, and the report page, also in a real browser."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from fedopt.errors import RunError, UserError
from fedopt.experiments.records import RunRecord, config_differences, labels, read_run
from fedopt.experiments.report import chart_data, render, write_report
from fedopt.experiments.table import columns, comparison_table, summarise, target_value

MB = 1_000_000
ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
INFO = {"fedopt": "0.1.0", "task": "emnist_cr", "seed": 0, "status": "done", "data": "synthetic"}
INFO |= {"metric": "accuracy", "better": "higher", "params": 1206590, "started": "2026-11-15T20:00:00+00:00"}
ENTER = "\ue007"  # as the WebDriver protocol writes the key
CHARTS = ("metric-by-round", "loss-by-round", "metric-by-megabytes")


def write_run(path: Path, name: str = "fedavg", values: tuple[float, ...] = (), **info: Any) -> RunRecord:
    """A run of four rounds, evaluated at 0, 2 and 4; an `info` value of None leaves its key out."""
    config, per_round = info.pop("config", "seed = 0\n"), info.pop("per_round", 10 * MB)
    metric = info.get("metric") or "accuracy"
    lines = [{"round": t, "split": "train", "loss": 1 / t, "bytes_total": per_round * t} for t in range(1, 5)]
    lines += [{"round": 2 * i, "split": "test", metric: v} for i, v in enumerate(values or (0.1, 0.5, 0.7))]
    known = INFO | {"algorithm": name, "rounds": 4, "command": f"fedopt run --algorithm {name}"} | info
    path.mkdir(parents=True)
    write_lines(path, lines)
    (path / "run.json").write_text(json.dumps({key: v for key, v in known.items() if v is not None}))
    (path / "config.toml").write_text(config)
    return read_run(path)


def write_lines(run: Path, lines: list[dict[str, Any]], end: str = "") -> None:
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + end)


@pytest.fixture
def three(tmp_path: Path) -> list[RunRecord]:
    """Best final value 0.80, so the target is 0.72: never met, met exactly at round 4, met at round 2."""
    runs, twice = tmp_path / "runs", 20 * MB
    return [
        write_run(runs / "a", "fedavg", (0.1, 0.5, 0.7), value=0.60, train_loss=0.9, seconds=3),
        write_run(runs / "b", "scaffold", (0.1, 0.6, 0.72), value=0.66, seconds=5, per_round=twice),
        write_run(runs / "c", "fedyogi", (0.1, 0.75, 0.85), value=0.80, train_loss=0.5, seconds=4),
    ]


def test_a_run_directory_is_read(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run")
    assert (record.label, record.metric, record.rounds) == ("fedavg", "accuracy", 4)
    assert record.curve("test", "accuracy") == ([0, 2, 4], [0.1, 0.5, 0.7])
    assert record.curve("train", "bytes_total") == ([1, 2, 3, 4], [1e7, 2e7, 3e7, 4e7])


def test_a_curve_has_finite_numbers_only_and_a_wide_span_a_logarithmic_axis(tmp_path: Path) -> None:
    run, losses = write_run(tmp_path / "run").path, (None, 2.0, "x", 300.0, float("nan"), float("inf"), True)
    write_lines(run, [{"round": t, "split": "train", "loss": loss} for t, loss in enumerate(losses, 1)])
    assert read_run(run).curve("train", "loss") == ([2, 4], [2.0, 300.0])
    assert chart_data(summarise([read_run(run)]), window=1)["charts"][1]["y"]["type"] == "log"


def test_a_half_written_last_line_is_dropped_and_a_repeated_round_counts_once(tmp_path: Path) -> None:
    run, lines = write_run(tmp_path / "run").path, [(0, 0.1), (2, 0.5), (4, 0.7), (2, 0.55)]
    as_lines = [{"round": t, "split": "test", "accuracy": value} for t, value in lines]
    write_lines(run, as_lines, end='{"round": 6, "split": "te')
    assert read_run(run).curve("test", "accuracy") == ([0, 2, 4], [0.1, 0.55, 0.7])


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("metrics.jsonl", b'{"round": 1, "split": ""}\n{"round": 2, "sp\n{}\n', "metrics.jsonl:2: damaged"),
        ("metrics.jsonl", b"[1]\n", "metrics.jsonl:1: damaged line: expected a JSON object"),
        ("metrics.jsonl", b'{"round": true, "split": "test"}\n', "metrics.jsonl:1: damaged line: 'round'"),
        ("metrics.jsonl", b'{"round": 1}\n', "metrics.jsonl:1: damaged line: 'split'"),
        ("metrics.jsonl", b"\0\0\0\n", "metrics.jsonl:1: damaged"),
        ("metrics.jsonl", b"\xff\xfe\xfd\n", "metrics.jsonl:1: damaged"),
        ("metrics.jsonl", None, "metrics.jsonl is missing"),
        ("run.json", b'{"task":\n', "run.json:2: damaged"),
        ("run.json", b"3", "run.json: expected one JSON object"),
        ("run.json", b'{"task": "emnist_cr"}', "run.json: 'algorithm' is missing"),
        ("run.json", b"\xff\xfe\xfd", "run.json: damaged"),
        ("run.json", None, "run.json is missing"),
        ("config.toml", b"seed = \n", "config.toml: damaged: Invalid value (at line 1"),
        ("config.toml", b"\xff\xfe\xfd", "config.toml: damaged"),
        ("config.toml", None, "config.toml is missing"),
        (".", None, "no run directory at "),
    ],
)
def test_damage_is_named_in_one_line(tmp_path: Path, file: str, content: bytes | None, says: str) -> None:
    target = write_run(tmp_path / "run").path / file
    if content is not None:
        target.write_bytes(content)
    elif target.is_dir():
        shutil.rmtree(target)
    else:
        target.unlink()
    with pytest.raises(UserError) as caught:
        read_run(tmp_path / "run")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_differences_are_dotted_and_leave_out_what_is_equal(tmp_path: Path) -> None:
    first = "seed = 0\nrounds = 60\n[client]\nlr = 0.1\n[server]\nlr = 1\n"
    second = "seed = 1\nrounds = 60\n[client]\nlr = 0.1\n[server]\nlr = 1.0\ntau = 1e-3\n"
    records = [write_run(tmp_path / name, config=c) for name, c in (("a", first), ("b", second))]
    assert config_differences(records) == {"seed": [0, 1], "server.tau": [None, 0.001]}


def test_runs_of_one_algorithm_are_told_apart(tmp_path: Path) -> None:
    plain, other = write_run(tmp_path / "plain"), write_run(tmp_path / "other")
    seeded = write_run(tmp_path / "seeded", config="seed = 1\n")
    assert labels([plain, write_run(tmp_path / "adam", "fedadam")]) == ["fedavg", "fedadam"]
    assert labels([plain, seeded]) == ["fedavg (seed 0)", "fedavg (seed 1)"]
    assert labels([plain, other]) == ["fedavg (plain)", "fedavg (other)"]
    assert labels([plain, plain]) == ["fedavg (plain) #1", "fedavg (plain) #2"]
    real = write_run(tmp_path / "real", data="femnist")
    assert labels([plain, real]) == ["fedavg on synthetic", "fedavg on femnist"]


def test_the_summary_has_the_numbers_worked_out_by_hand(three: list[RunRecord]) -> None:
    assert target_value(three) == 0.72  # 0.80 less 10 %
    best, second, last = summarise(three)
    assert [s.label for s in (best, second, last)] == ["fedyogi", "scaffold", "fedavg"]
    assert (best.value, best.train_loss, best.seconds) == (0.80, 0.5, 4.0)
    assert second.train_loss == pytest.approx(25 / 48)  # not recorded: the mean of 1, 1/2, 1/3, 1/4
    assert (best.rounds_to_target, best.bytes_to_target, best.bytes_total) == (2, 20 * MB, 40 * MB)
    assert (second.rounds_to_target, second.bytes_to_target, second.bytes_total) == (4, 80 * MB, 80 * MB)
    assert (last.rounds_to_target, last.bytes_to_target, last.bytes_total) == (None, None, 40 * MB)


def test_a_lower_metric_is_ranked_and_reached_from_above(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"metric": "mse", "better": "lower"}
    records = [
        write_run(tmp_path / "a", "fedavg", (0.1, 0.021, 0.0198), value=0.0204, **shared),
        write_run(tmp_path / "b", "fedadam", (0.1, 0.019, 0.017), value=0.018, **shared),
    ]
    assert target_value(records) == 0.0198  # 0.018 plus 10 %
    assert [(s.label, s.rounds_to_target) for s in summarise(records)] == [("fedadam", 2), ("fedavg", 4)]
    assert [cell.text for cell in columns(summarise(records))[0].cells] == ["18.00", "20.40"]


def test_an_unfinished_run_has_its_mean_over_the_last_hundred_rounds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", rounds=200, metric=None, better=None).path
    values = {0: 0.0, 50: 0.3, 51: 0.5, 150: 0.7}
    write_lines(run, [{"round": t, "split": "test", "accuracy": v, "seconds": t} for t, v in values.items()])
    (summary,) = summarise([read_run(run)])
    assert summary.value == pytest.approx(0.6)  # rounds 51 to 150: 0.5 and 0.7
    assert (summary.seconds, summary.bytes_total) == (150.0, None)
    assert summary.note == "unfinished, round 150 of 200"
    write_lines(run, [])
    assert "No run has a result yet." in render([read_run(run)], "just started")


def test_a_failed_run_comes_last_and_does_not_set_the_target(tmp_path: Path) -> None:
    failed = write_run(tmp_path / "a", "fedadam", (0.1, 0.99, 0.99), status="failed", rounds=60)
    records = [failed, write_run(tmp_path / "b", value=0.5)]
    assert [s.label for s in summarise(records)] == ["fedavg", "fedadam"]
    assert [s.note for s in summarise(records)] == ["", "failed, round 4 of 60"]
    assert target_value(records) == 0.45


def test_the_terminal_table_is_sorted_scaled_and_says_synthetic(three: list[RunRecord]) -> None:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as capture:
        console.print(comparison_table(three))
    title, *lines = capture.get().splitlines()
    assert title.strip() == "emnist_cr, 4 rounds, synthetic data"
    rows = [line.split() for line in lines if line.strip().startswith(("fed", "scaffold"))]
    assert [row[0] for row in rows] == ["fedyogi", "scaffold", "fedavg"]
    assert rows[0] == ["fedyogi", "80.0", "%", "85.0", "%", "0.500", "2", "40.0", "4.00"]
    assert rows[2] == ["fedavg", "60.0", "%", "70.0", "%", "0.900", "–", "40.0", "3.00"]
    best = [[cell.best for cell in column.cells] for column in columns(summarise(three))]
    assert best[0] == [True, False, False]
    assert best[4] == [False, False, False]  # two of three share the fewest MB: nothing stands out


def page_without_plotly(records: list[RunRecord], title: str) -> str:
    return render(records, title).replace(get_plotlyjs(), "")


def test_the_page_says_what_the_runs_are(three: list[RunRecord], tmp_path: Path) -> None:
    write_report(three, tmp_path / "new" / "report.html", "Three runs")
    page = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    assert page == render(three, "Three runs")  # the same runs, the same page
    words = ["<h1>Three runs</h1>", '"badge">synthetic data<', "2026-11-15", "0.1.0", "1,206,590"]
    words += ["Best of 3 runs: fedyogi, with accuracy 80.0 %", "rounds to 72 %", "run --algorithm scaffold"]
    assert [word for word in words if word not in page] == []
    assert "synthetic" not in page_without_plotly([write_run(tmp_path / "real", data="femnist")], "real")


def test_everything_from_files_is_escaped(tmp_path: Path) -> None:
    names = "task command data message started fedopt x_sha256 params seed rounds".split()
    config = f'seed = "%s"\n{json.dumps(ATTACK)} = "%s"\nother = {json.dumps(ATTACK)}\n'
    records = [
        write_run(tmp_path / name, ATTACK, config=config.replace("%s", name), **dict.fromkeys(names, ATTACK))
        for name in "ab"
    ]
    page = page_without_plotly(records, ATTACK)
    assert page.count("<script") == page.count("</script") == 3
    assert "<img" not in page
    assert f"<h1>{escape(ATTACK)}</h1>" in page
    assert all("<" not in run["name"] for run in chart_data(summarise(records), 1)["runs"])


def test_the_charts_have_the_scaled_numbers(three: list[RunRecord]) -> None:
    metric, loss, sent = chart_data(summarise(three), window=2)["charts"]
    assert metric["lines"][0]["x"] == [0, 2, 4]
    assert metric["lines"][0]["y"] == pytest.approx([10, 75, 85])
    assert metric["target"] == pytest.approx(72)
    assert sent["lines"][1]["x"] == [0, 40, 80]  # scaffold, 20 MB a round
    assert loss["lines"][0]["y"] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert loss["lines"][3]["y"] == pytest.approx([1, 3 / 4, 5 / 12, 7 / 24])  # means of two


def test_no_runs_and_mixed_tasks_are_refused(three: list[RunRecord], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs"):
        write_report([], tmp_path / "report.html", "none")
    other = write_run(tmp_path / "other", task="shakespeare")
    with pytest.raises(UserError, match="one task.*emnist_cr, shakespeare"):
        write_report([*three, other], tmp_path / "report.html", "mixed")
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_leaves_nothing_behind(three: list[RunRecord], tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    target.mkdir(parents=True)  # a directory cannot be replaced by a file, whoever asks
    with pytest.raises(RunError, match="cannot write .*report.html"):
        write_report(three, target, "blocked")
    assert list(target.parent.iterdir()) == [target]
    with pytest.raises(RunError, match="cannot write"):
        write_report(three, three[0].path / "run.json" / "report.html", "below a file")


def test_an_interrupted_write_keeps_the_old_page(three: list[RunRecord], tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    write_report(three, target, "old")
    before = target.read_bytes()
    with mock.patch("os.replace", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        write_report(three, target, "new")
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    for flag in (flags + "disable-component-update disable-sync").split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield session
    session.quit()


@pytest.fixture
def opened(browser: Any, three: list[RunRecord], tmp_path: Path) -> Any:
    """The page of the three runs in the browser, with nothing left of what was there before."""
    write_report(three, tmp_path / "report.html", ATTACK)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get((tmp_path / "report.html").as_uri())
    return browser


def attributes(browser: Any, selector: str, name: str) -> list[str]:
    return [element.get_attribute(name) for element in browser.find_elements("css selector", selector)]


def counts(browser: Any, selector: str) -> list[int]:
    """How many elements each chart has for `selector`."""
    return [len(browser.find_elements("css selector", f"#{name} {selector}")) for name in CHARTS]


def eventually(browser: Any, condition: Callable[[], bool]) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 10, poll_frequency=0.05).until(lambda _: condition())


def test_browser_draws_the_charts_without_errors_or_requests(opened: Any) -> None:
    assert counts(opened, ".trace .js-line") == [3, 3, 3]
    assert counts(opened, ".xtitle") == counts(opened, ".ytitle") == [1, 1, 1]
    assert opened.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [url.split(":")[0] for url in sent if not url.startswith(("data:", "blob:"))] == ["file"]  # itself


def test_browser_sorts_on_click_and_on_enter(opened: Any) -> None:
    def order() -> tuple[str, list[str]]:
        names = attributes(opened, "table.sortable tbody th", "data-value")
        return " ".join(names), attributes(opened, "table.sortable thead th", "aria-sort")

    buttons = opened.find_elements("css selector", "table.sortable thead button")
    assert order() == ("fedyogi scaffold fedavg", ["none", "descending"] + ["none"] * 6)
    buttons[7].click()  # seconds: 3, 4, 5
    assert order() == ("fedavg fedyogi scaffold", ["none"] * 7 + ["ascending"])
    buttons[7].send_keys(ENTER)
    assert order() == ("scaffold fedyogi fedavg", ["none"] * 7 + ["descending"])
    buttons[4].send_keys(ENTER)  # rounds to the target, which fedavg never meets
    assert order()[0] == "fedyogi scaffold fedavg"
    buttons[4].send_keys(" ")
    assert order()[0] == "scaffold fedyogi fedavg"
    buttons[0].click()
    assert order() == ("fedavg fedyogi scaffold", ["ascending"] + ["none"] * 7)


def test_browser_hides_a_run_in_every_chart(opened: Any) -> None:
    entry = opened.find_element("css selector", ".legend button")
    entry.send_keys(" ")
    assert attributes(opened, '.legend [data-run="0"]', "aria-pressed") == ["false"] * 3
    eventually(opened, lambda: counts(opened, ".trace .js-line") == [2, 2, 2])
    entry.click()
    eventually(opened, lambda: counts(opened, ".trace .js-line") == [3, 3, 3])


def test_browser_page_fits_a_phone_and_follows_the_dark(opened: Any) -> None:
    size = {"width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    background = "return document.getElementById('loss-by-round')._fullLayout.paper_bgcolor"
    light = opened.execute_script(background)
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    eventually(opened, lambda: opened.execute_script("return document.documentElement.scrollWidth") == 360)
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    eventually(opened, lambda: opened.execute_script(background) != light)
    assert opened.get_log("browser") == []
