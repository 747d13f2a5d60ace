"""The report on runs that are still running, served over HTTP. The browser asks for its version every second.

By default the server listens on the loopback interface and answers only requests that name it, so that
other websites cannot read the page through a host name of theirs. On other interfaces every request needs a
token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedopt.errors import RunDirectoryError, UserError
from fedopt.reports.page import default_title, render_report, render_template
from fedopt.runs.discover import find_runs, run_directories

WATCHED_FILES = ("run.json", "metrics.jsonl")
LOOPBACK = "127.0.0.1"
MAX_CONNECTIONS = 32
REQUEST_SECONDS = 60.0
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address may contain a token
    "Cache-Control": "no-store",
}


class LivePage:
    """The current report on all runs at or under some directories. Several threads may use it."""

    def __init__(self, paths: Sequence[Path], title: str | None = None) -> None:
        """Raises `RunDirectoryError` if a path is not a directory."""
        for path in paths:
            if not path.is_dir():
                raise RunDirectoryError(
                    f"{path} is not a directory; name a run, a comparison, a sweep or a directory of them",
                    path=path,
                )
        self._paths = list(paths)
        self._title = title
        self._lock = threading.Lock()
        self._rendered: tuple[str, str] | None = None  # version and page

    def version(self) -> str:
        """Return a text that changes when a run starts or writes."""
        states = []
        for path in self._paths:
            for directory in sorted(run_directories(path)):
                for name in WATCHED_FILES:
                    with suppress(OSError):  # not written yet
                        status = (directory / name).stat()
                        states.append(f"{directory / name} {status.st_size} {status.st_mtime_ns}")
        return hashlib.sha256("\n".join(states).encode(errors="surrogateescape")).hexdigest()[:16]

    def render(self) -> str:
        """Return the page as HTML, from memory if no run has changed."""
        with self._lock:
            version = self.version()
            if self._rendered is None or self._rendered[0] != version:
                self._rendered = (version, self._render(version))
            return self._rendered[1]

    def _render(self, version: str) -> str:
        empty = [path for path in self._paths if not any(run_directories(path))]
        waiting = f"Waiting for the first run in {', '.join(map(str, empty))}." if empty else ""
        try:
            records, damaged = find_runs([path for path in self._paths if path not in empty])
            left_out = f"Runs that cannot be read: {'; '.join(damaged)}" if damaged else ""
            notes = [note for note in (waiting, left_out) if note]
            if records:
                title = self._title or default_title(records)
                return render_report(records, title, version=version, notes=notes)
        except UserError as error:  # such as runs of several tasks
            notes = [str(error)]
        title = self._title or f"fedopt watch {', '.join(map(str, self._paths))}"
        values = {"title": title, "version": version, "message": " ".join(notes)}
        return render_template("fedopt.reports", "waiting.html.j2", **values)


def needs_token(host: str) -> bool:
    """Return whether other machines can reach a server on `host`. Raises OSError for an unknown name."""
    return not ip_address(socket.gethostbyname(host)).is_loopback


class LiveServer(ThreadingHTTPServer):
    """An HTTP server for one live page. `token` is "" on the loopback interface."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, page: LivePage, host: str = LOOPBACK, port: int = 0) -> None:
        """Bind to `host` and `port`; port 0 selects a free one. Raises `UserError` if this fails."""
        self.page = page
        self._free = threading.Semaphore(MAX_CONNECTIONS)
        try:
            self.token = secrets.token_urlsafe(24) if needs_token(host) else ""
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError, ValueError) as error:
            raise UserError(
                f"cannot listen on {host} port {port}: {error}; choose another --host or --port"
            ) from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page, with the token if one is needed."""
        host = str(self.server_address[0])
        if not self.token:
            return f"http://{host}:{self.port}/"
        name = socket.gethostname() if ip_address(host).is_unspecified else host
        return f"http://{name}:{self.port}/?token={self.token}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Close a connection at once if there are too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request. End it when its time is over, also if it sends a byte now and then."""
        deadline = threading.Timer(REQUEST_SECONDS, _disconnect, [request])
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, unless the browser has closed the connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _disconnect(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer

    def do_GET(self) -> None:
        try:
            address = urlsplit(self.path)
        except ValueError:
            return self._send(HTTPStatus.BAD_REQUEST, "the address cannot be read\n")
        if not self._is_allowed(parse_qs(address.query).get("token", [""])[0]):
            reason = "a token is needed" if self.server.token else "the host name is not allowed"
            self._send(HTTPStatus.FORBIDDEN, f"{reason}; open the address that `fedopt watch` has printed\n")
        elif address.path == "/":
            self._send(HTTPStatus.OK, self.server.page.render(), "html")
        elif address.path == "/version":
            self._send(HTTPStatus.OK, self.server.page.version())
        else:
            self._send(HTTPStatus.NOT_FOUND, "not found; the page is at /\n")

    def _is_allowed(self, token: str) -> bool:
        if self.server.token:
            return hmac.compare_digest(token.encode(), self.server.token.encode())
        names = (LOOPBACK, "localhost", str(self.server.server_address[0]))
        return self.headers.get("Host") in {f"{name}:{self.server.port}" for name in names}

    def _send(self, status: HTTPStatus, text: str, kind: str = "plain") -> None:
        body = text.encode()
        self.send_response(status)
        content = {"Content-Type": f"text/{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (HEADERS | content).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write no access log."""
