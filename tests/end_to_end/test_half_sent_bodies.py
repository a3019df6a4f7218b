"""Behind the proxy that the documents ask for, half-sent requests stop nothing."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from tests.processes import LIMIT, ROOT, Site, free_port, serve, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]
EXAMPLE = ROOT / "docs" / "how-to" / "deployment" / "nginx.conf"
HALVES = 16
MAIN = """
pid {folder}/nginx.pid;
error_log {folder}/error.log;
daemon off;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}
}}
"""


def program() -> str:
    found = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None and os.environ.get("CI") != "true":
        pytest.skip("nginx is not installed")
    return found or "nginx"


@contextmanager
def proxy(site: Site, folder: Path) -> Iterator[Site]:
    """The example as it is, but for names and certificates, and with shorter time limits."""
    port = free_port()
    server = re.sub(r"^ *ssl_.*\n", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    for old, new in {
        "listen 443 ssl;": f"listen 127.0.0.1:{port};",
        "ergon.example;": "localhost;",
        "http://127.0.0.1:8000;": f"{site.url};",
        "client_body_timeout   10s;": "client_body_timeout 2s;",
        "client_header_timeout 10s;": "client_header_timeout 2s;",
    }.items():
        assert old in server, old
        server = server.replace(old, new)
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(MAIN.format(folder=folder, user=user, server=server))
    running = subprocess.Popen(
        [program(), "-c", str(configuration), "-p", str(folder), "-e", str(folder / "error.log")]
    )
    try:
        made = Site(f"http://127.0.0.1:{port}", running.pid)
        wait_for(f"{made.url}/livez")
        yield made
    finally:
        running.terminate()
        running.wait(LIMIT)


def half_a_request(site: Site, *, is_header: bool = False) -> socket.socket:
    address = urlsplit(site.url)
    connection = socket.create_connection((address.hostname, address.port), timeout=LIMIT)
    # Of a form that anybody may send: its body is read before anything is known of the caller.
    head = b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    cookie = b"Cookie: csrftoken=" + b"a" * 32 + b"\r\n"
    connection.sendall(head if is_header else head + cookie + b"Content-Length: 1000\r\n\r\nusername=ada&pass")
    return connection


def test_half_sent_bodies_hold_no_thread_of_the_web_process(tmp_path: Path) -> None:
    token = clients.create("press", Grant(scopes=["transactions:submit"]), by="tests").token.text
    with (
        serve(threads="4", ERGON_TRUSTED_PROXIES="127.0.0.1") as site,
        proxy(site, tmp_path) as front,
        ExitStack() as stack,
    ):
        halves = [stack.enter_context(half_a_request(front)) for _ in range(HALVES)]
        halves += [stack.enter_context(half_a_request(front, is_header=True)) for _ in range(HALVES)]
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(8):
            assert httpx.get(f"{front.url}/admin/login/", timeout=LIMIT).status_code == 200
            answer = httpx.post(f"{front.url}/api/v1/transactions", json={}, headers=headers, timeout=LIMIT)
            assert answer.json()["code"] == "invalid_request"
        # The proxy ends them by itself: the callers have not gone away.
        for one in halves:
            told = one.makefile("rb").read()
            assert told == b"" or b" 408 " in told.splitlines()[0], told


def test_a_whole_request_passes_the_proxy_and_tells_where_it_comes_from(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    with serve(log=log, ERGON_TRUSTED_PROXIES="127.0.0.1") as site, proxy(site, tmp_path) as front:
        told = {"X-Forwarded-For": "203.0.113.9", "Authorization": "Bearer wrong"}
        assert httpx.get(f"{front.url}/api/v1/client", headers=told, timeout=LIMIT).status_code == 401
        assert httpx.get(f"{front.url}/metrics", timeout=LIMIT).status_code == 401
    assert "forwarded_address_ignored" not in log.read_text()
