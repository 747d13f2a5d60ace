"""Serve the live page over HTTP. The browser receives server-sent events when a run changes.

By default the server listens on the loopback interface and answers only requests that name it, so that
other websites cannot read the page through a host name of theirs. On other interfaces every request needs a
token.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedopt.errors import UserError
from fedopt.reporting.live_page import LivePage

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15.0  # an event at least this often detects closed connections
MAX_CONNECTIONS = 64  # others are closed at once; an open page has one
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the first address contains the token
    "Cache-Control": "no-store",
}


def needs_token(host: str) -> bool:
    """Return whether other machines can reach a server on `host`. Raises OSError for an unknown name."""
    return not ip_address(socket.gethostbyname(host)).is_loopback


class LiveServer(ThreadingHTTPServer):
    """An HTTP server for one live page. `token` is "" on the loopback interface."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, page: LivePage, host: str = LOOPBACK, port: int = 0) -> None:
        """Bind to `host` and `port`; port 0 selects a free one. Raises `UserError` if this fails."""
        self.page, self._free = page, threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            self.token = secrets.token_urlsafe(24) if needs_token(host) else ""
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError, ValueError) as error:
            raise UserError(
                f"cannot listen on {host} port {port}: {error}; choose another --host or --port"
            ) from error

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # the browser has gone, or does not read
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def cookie(self) -> str:
        """The name of the cookie with the token. Browsers send cookies to all ports of a host."""
        return f"fedopt_watch_{self.port}"

    @property
    def url(self) -> str:
        """The address of the page, with the token if one is needed."""
        host = str(self.server_address[0])
        if not self.token:
            return f"http://{host}:{self.port}/"
        name = socket.gethostname() if ip_address(host).is_unspecified else host
        return f"http://{name}:{self.port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = 10.0  # seconds without a byte of the request, or in which the browser reads nothing

    def do_GET(self) -> None:
        try:
            url = urlsplit(self.path)
            path, query = url.path, parse_qs(url.query)
        except ValueError:
            self._send_text(HTTPStatus.BAD_REQUEST, "this is not an address; the page is at /\n")
            return
        if self.server.token and self._is_token(query.get("token", [""])[0]):
            self._accept_token()
        elif not self._is_allowed():
            self._refuse()
        elif path == "/":
            self._send_page()
        elif path == "/events":
            self._send_events()
        else:
            self._send_text(HTTPStatus.NOT_FOUND, "not found; the page is at /\n")

    def _is_allowed(self) -> bool:
        if not self.server.token:
            names = (LOOPBACK, "localhost", str(self.server.server_address[0]))
            return self.headers.get("Host", "") in {f"{name}:{self.server.port}" for name in names}
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return cookie is not None and self._is_token(cookie.value)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _accept_token(self) -> None:
        """Store the token in a cookie and remove it from the address."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        cookie = f"{self.server.cookie}={self.server.token}"
        self.send_header("Set-Cookie", f"{cookie}; HttpOnly; SameSite=Strict; Path=/")
        self._end_headers(0)

    def _refuse(self) -> None:
        reason = "a token is needed" if self.server.token else "the host name is not allowed"
        self._send_text(HTTPStatus.FORBIDDEN, f"{reason}; open the address that `fedopt watch` has printed\n")

    def _send_page(self) -> None:
        body = self.server.page.render().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self._end_headers(len(body))
        self.wfile.write(body)

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self._end_headers(len(text))
        self.wfile.write(text.encode())

    def _send_events(self) -> None:
        """Send an event with the version of the page now and after every change."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self._end_headers()
        sent, sent_at = "", 0.0
        try:
            while True:
                version = self.server.page.version()
                if version != sent or time.monotonic() - sent_at > KEEP_ALIVE_SECONDS:
                    self.wfile.write(f"event: version\ndata: {version}\n\n".encode())
                    self.wfile.flush()
                    sent, sent_at = version, time.monotonic()
                time.sleep(POLL_SECONDS)
        except OSError:  # the browser has closed the page
            return

    def _end_headers(self, length: int | None = None) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Write no access log."""
