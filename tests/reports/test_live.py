"""The live page over HTTP and in a browser."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import by_class, parse_page, text
from written import write_lines, write_run

from fedopt.errors import RunDirectoryError, UserError
from fedopt.reports import live
from fedopt.reports.live import LivePage, LiveServer, needs_token

ATTACK = "<script>alert(1)</script>"


@pytest.fixture
def start() -> Iterator[Callable[..., LiveServer]]:
    """Return a function that starts a server for some directories."""
    servers = []

    def started(*paths: Path, title: str | None = None) -> LiveServer:
        server = LiveServer(LivePage(paths, title))
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    yield started
    for server in servers:
        server.shutdown()
        server.server_close()


def get(server: LiveServer, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def train(run: Path, rounds: int, status: str = "running") -> None:
    """Write a run of 20 planned rounds that has done some of them. Its accuracy is the round in percent."""
    lines: list[dict[str, Any]] = [
        {"round": t, "split": "train", "loss": 1 / t, "bytes_total": t * 1000} for t in range(1, rounds + 1)
    ]
    lines += [{"round": t, "split": "test", "accuracy": t / 100} for t in range(rounds + 1)]
    write_lines(run, lines)
    info = json.loads((run / "run.json").read_text()) | {"rounds": 20, "status": status}
    (run / "run.json").write_text(json.dumps(info))


def test_server_listens_on_the_loopback_interface_without_a_token(start: Any, tmp_path: Path) -> None:
    server = start(tmp_path)
    assert server.server_address[0] == "127.0.0.1" and server.token == ""
    assert server.url == f"http://127.0.0.1:{server.port}/"


def test_hosts_that_other_machines_reach_need_a_token() -> None:
    assert [needs_token(host) for host in ("127.0.0.1", "localhost", "127.1.2.3")] == [False] * 3
    assert [needs_token(host) for host in ("0.0.0.0", "192.0.2.7")] == [True] * 2


def test_page_is_escaped_and_may_connect_only_to_its_server(start: Any, tmp_path: Path) -> None:
    write_run(tmp_path / "run", ATTACK, command=ATTACK)
    answer = get(start(tmp_path, title=ATTACK))
    page = parse_page(answer.read().decode())
    assert answer.status == 200 and text(page.find(".//h1")) == ATTACK
    assert not any(
        "alert(1)" in (script.text or "") for script in page.iter("script") if script.get("id") is None
    )
    assert "connect-src 'self'" in answer.getheader("Content-Security-Policy", "")
    assert answer.getheader("Cache-Control") == "no-store"


def test_requests_for_another_host_name_are_refused(start: Any, tmp_path: Path) -> None:
    server = start(tmp_path)
    for path in ("/", "/version"):
        assert get(server, path, Host=f"attacker.example:{server.port}").status == 403
        assert get(server, path, Host="").status == 403
    assert get(server, Host=f"localhost:{server.port}").status == 200
    assert get(server, "/etc/passwd").status == 404


def test_bad_request_gets_400_without_a_traceback(start: Any, tmp_path: Path, capfd: Any) -> None:
    server = start(tmp_path)
    for request in (b"GET http://[::1/ HTTP/1.0", b"GET / HTTP/x", b"\x00 \xff"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(request + b"\r\n\r\n")
            answer = connection.makefile("rb").read()
        assert b"400" in answer.split(b"\n")[0] or b"Error code: 400" in answer, request
    assert get(server).status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_token_is_required_in_the_address(start: Any, tmp_path: Path) -> None:
    server = start(tmp_path)
    server.token = "secret"  # as on an interface that other machines reach
    assert server.url.endswith("/?token=secret")
    for path in ("/", "/version", "/?token=wrong", "/?token=", "/?token=%C3%A9"):
        assert get(server, path).status == 403
    assert [get(server, f"{path}?token=secret").status for path in ("/", "/version")] == [200, 200]


def test_browser_keeps_the_token(browser: Any, start: Any, tmp_path: Path) -> None:
    train(write_run(tmp_path / "run").path, 8)
    server = start(tmp_path)
    server.token = "secret"
    browser.get(server.url)
    train(tmp_path / "run", 12)
    lead = "return document.querySelector('.lead').textContent"
    wait_until(lambda: "12.0" in browser.execute_script(lead))


def test_page_has_the_version_that_the_server_announces(start: Any, tmp_path: Path) -> None:
    """A run that writes between the page and the first event changes the version."""
    run = write_run(tmp_path / "run", status="running").path
    server = start(tmp_path)

    def shown() -> str | None:
        (status,) = by_class(parse_page(get(server).read().decode()), "live")
        return status.get("data-version")

    before = shown()
    assert before == server.page.version()
    train(run, 3)
    assert shown() == server.page.version() != before


def test_empty_directories_and_damaged_runs_are_noted_above_the_others(tmp_path: Path) -> None:
    good, empty = tmp_path / "good", tmp_path / "empty"
    write_run(good / "a")
    empty.mkdir()
    write_run(good / "b").path.joinpath("run.json").write_text("{")
    page = parse_page(LivePage([good, empty]).render())
    assert by_class(page, "chart")
    waiting, damaged = (text(note) for note in by_class(page.find(".//header"), "warning"))
    assert waiting == f"Waiting for the first run in {empty}."
    assert damaged.startswith("Runs that cannot be read: ") and str(good / "b") in damaged


def test_version_changes_when_a_run_writes(start: Any, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running").path
    server = start(tmp_path)
    before = get(server, "/version").read()
    assert before == get(server, "/version").read()
    train(run, 3)
    assert get(server, "/version").read() != before


def test_address_that_cannot_be_read_is_a_bad_request(start: Any, tmp_path: Path) -> None:
    server = start(tmp_path)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(b"GET http://[::1/ HTTP/1.0\r\n\r\n")
        assert connection.recv(100).split()[1] == b"400"


def test_connections_are_limited_in_number_and_time(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(live, "REQUEST_SECONDS", 0.5)
    server = start(tmp_path)
    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(2)]
    for connection in slow:
        connection.sendall(b"GET / HTTP/1.0\r\n")  # without the empty line at the end
    with pytest.raises(OSError):  # closed without an answer
        get(server)
    assert [connection.recv(100) for connection in slow] == [b"", b""]  # after half a second
    wait_until(lambda: get(server).status == 200)
    for connection in slow:
        connection.close()


def test_path_that_is_not_a_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError) as caught:
        LivePage([tmp_path / "nothing"])
    assert caught.value.path == tmp_path / "nothing"


def test_port_in_use_is_an_error(start: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose another --host or --port"):
        LiveServer(LivePage([tmp_path]), port=start(tmp_path).port)


def test_problems_are_shown_until_they_are_solved(tmp_path: Path) -> None:
    page = LivePage([tmp_path])
    assert "Waiting for the first run" in page.render()
    write_run(tmp_path / "a")
    assert by_class(parse_page(page.render()), "chart")
    write_run(tmp_path / "b", task="shakespeare")
    assert "one task" in text(parse_page(page.render()).find(".//main"))


def test_browser_shows_new_rounds_and_keeps_the_view(browser: Any, start: Any, tmp_path: Path) -> None:
    for name in ("fedadam", "fedavg"):
        train(write_run(tmp_path / name, name).path, 8)
    server = start(tmp_path)
    browser.get(server.url)

    def find(selector: str) -> list[Any]:
        return list(browser.find_elements("css selector", selector))

    def lead() -> str:
        return browser.execute_script("return document.querySelector('.lead').textContent")

    def status() -> str:
        return browser.execute_script("return document.querySelector('.live').textContent")

    assert "8.0" in lead() and status() == "Live."
    find('#metric-by-round .legend [data-line^="fedavg"]')[0].click()
    find('#metric-by-round [data-do="log"]')[0].click()
    browser.execute_script("viewOf(charts[0]).x = [2, 6]; draw(charts[0])")
    for name in ("fedadam", "fedavg"):
        train(tmp_path / name, 12)
    wait_until(lambda: "12.0" in lead())
    wait_until(lambda: status().startswith("Live. Last change: "))
    assert len(find("#metric-by-round .line")) == 1
    assert find('#metric-by-round [data-do="log"]')[0].get_attribute("aria-pressed") == "true"
    assert browser.execute_script("return viewOf(charts[0]).x") == [2, 6]
    assert browser.get_log("browser") == []


def test_page_is_not_replaced_during_a_drag(browser: Any, start: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    train(write_run(tmp_path / "fedadam", "fedadam").path, 8)
    server = start(tmp_path)
    browser.get(server.url)
    title, shown = browser.title, "return document.querySelector('.lead').textContent"
    plot = browser.find_element("css selector", "#metric-by-round .plot")
    mouse = ActionChains(browser, duration=0)
    mouse.move_to_element_with_offset(plot, -50, 0).click_and_hold().move_by_offset(150, 0).perform()
    train(tmp_path / "fedadam", 12)
    train(write_run(tmp_path / "fedavg", "fedavg").path, 12)
    fetched = "return performance.getEntriesByName(location.href, 'resource').length"
    wait_until(lambda: browser.execute_script(fetched) > 0)
    assert "8.0" in browser.execute_script(shown)
    mouse.release().perform()
    wait_until(lambda: "12.0" in browser.execute_script(shown))
    low, high = browser.execute_script("return viewOf(charts[0]).x")
    assert 2 < low < high < 8
    wait_until(lambda: browser.title == title.replace("fedadam", "fedadam, fedavg"))


def test_browser_shows_what_was_written_before_the_first_event(
    browser: Any, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last round of a run may be written after the page is rendered and before the events begin."""
    run = write_run(tmp_path / "run").path
    train(run, 8)
    server, render = start(tmp_path), LivePage.render

    def render_and_write(page: LivePage) -> str:
        text = render(page)
        monkeypatch.undo()  # write once
        train(run, 9)
        return text

    monkeypatch.setattr(LivePage, "render", render_and_write)
    browser.get(server.url)
    lead = "return document.querySelector('.lead').textContent"
    wait_until(lambda: "9.0" in browser.execute_script(lead))


def test_browser_waits_for_the_first_run(browser: Any, start: Any, tmp_path: Path) -> None:
    browser.get(start(tmp_path).url)
    assert "Waiting for the first run" in browser.find_element("css selector", "main").text
    train(write_run(tmp_path / "run").path, 2)
    wait_until(lambda: len(browser.find_elements("css selector", ".chart")) == 3)


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
