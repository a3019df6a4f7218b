"""Static files and pages as a browser gets them from a real server: cached for ever, compressed."""

import re
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from engines import transactions
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.console_templates import THEME, UNUSED
from ergon_site.static_files import MOST
from facts import ledger, provisioning
from tests.api.api_clients import client_with
from tests.factories import make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import LIMIT, Site

# The files are the same whatever the database.
pytestmark = [pytest.mark.once, pytest.mark.django_db(transaction=True)]

FOREVER = "max-age=315360000, public, immutable"


def get(site: Site, address: str, session: str = "", **headers: str) -> httpx.Response:
    cookies = {settings.SESSION_COOKIE_NAME: session}
    return httpx.get(f"{site.url}{address}", headers=headers, cookies=cookies, timeout=LIMIT)


def addresses(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="(/static/[^"]*)"', page)


def test_every_file_of_a_page_is_cached_for_ever_and_compressed(site: Site) -> None:
    found = addresses(get(site, "/admin/login/").text)
    assert any(one.endswith("/ergon/console.css") for one in found)
    for address in found:
        answer = get(site, address)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, FOREVER), address
        assert answer.headers["Content-Encoding"] == "gzip", address
        assert "Accept-Encoding" in answer.headers["Vary"]
        plain = get(site, address, **{"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers
        assert (plain.content, plain.headers["Cache-Control"]) == (answer.content, FOREVER)


def test_what_a_style_sheet_refers_to_is_cached_for_ever_too(site: Site) -> None:
    (sheet,) = [one for one in addresses(get(site, "/admin/login/").text) if one.endswith("/inter/styles.css")]
    fonts = re.findall(r"url\(['\"]?([^'\")]+)", get(site, sheet).text)
    assert fonts
    answer = get(site, f"{sheet.rsplit('/', 1)[0]}/{fonts[0]}")
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, FOREVER)


def test_a_file_of_another_release_is_given_but_not_kept(site: Site) -> None:
    """While a fleet is upgraded, pages of one release ask processes of the other."""
    for address in ("/static/0123456789ab/ergon/console.css", "/static/ergon/console.css"):
        answer = get(site, address)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "max-age=60, public")
    for address in ("/static/0123456789ab/ergon/nothing.css", "/static/0123456789ab/", "/static/"):
        assert get(site, address).status_code == 404


def test_a_part_of_a_file_and_an_unchanged_file_are_answered_as_such(site: Site) -> None:
    (sheet,) = [one for one in addresses(get(site, "/admin/login/").text) if one.endswith("/ergon/console.css")]
    whole = get(site, sheet)
    part = get(site, sheet, Range="bytes=0-9")
    assert (part.status_code, part.content) == (206, whole.content[:10])
    unchanged = get(site, sheet, **{"If-Modified-Since": whole.headers["Last-Modified"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


def test_no_page_loads_a_script_that_none_uses(browse: Client, administrator: User) -> None:
    for template, unused in UNUSED.items():
        theme = (THEME / template).read_text()
        assert all(theme.count(one) == 1 for one in unused), "else there is nothing to leave out any more"
    make_pipeline("orders")
    scripts = "/chart.js", "/alpine.sort.js", "/jsi18n/", "/jquery.min.js", "/xregexp.min.js", "/urlify.js"
    for address in (
        "/admin/login/",
        "/admin/",
        "/admin/engines/pipeline/",
        "/admin/engines/executor/",
        "/admin/auth/user/",
    ):
        page = browse.get(address, follow=True).content.decode()
        assert "/alpine.js" in page
        assert not [one for one in scripts if one in page], address


def test_pages_exports_and_large_answers_of_the_api_are_compressed(
    site: Site, browse: Client, administrator: User
) -> None:
    make_pipeline("orders")
    for number in range(20):
        transactions.submit("orders", {}, id=f"order-{number}")
    session = browse.cookies[settings.SESSION_COOKIE_NAME].value
    for address in ("/admin/", "/admin/engines/transactionrecord/", "/admin/engines/transactionrecord/export.csv"):
        answer = get(site, address, session)
        assert (answer.status_code, answer.headers.get("Content-Encoding")) == (200, "gzip"), address
    assert "order-19" in answer.text
    told: dict[str, Any] = client_with("transactions:read", "policies:read").defaults
    token = {"Authorization": told["HTTP_AUTHORIZATION"]}
    listed = get(site, "/api/v1/transactions", **token)
    assert (listed.status_code, listed.headers["Content-Encoding"]) == (200, "gzip")
    assert int(listed.headers["Content-Length"]) < len(listed.content)
    plain = get(site, "/api/v1/transactions", **token, **{"Accept-Encoding": "identity"})
    assert (plain.content, "Content-Encoding" in plain.headers) == (listed.content, False)
    assert listed.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    # Small ones, and those whose ETag a change is based on, stay as they are.
    for address in ("/api/v1/client", "/api/v1/policies/default"):
        assert "Content-Encoding" not in get(site, address, **token).headers, address
    assert get(site, "/api/v1/policies/default", **token).headers["ETag"] == '"1"'


def test_a_very_large_answer_of_the_api_is_not_copied_to_be_compressed(site: Site) -> None:
    make_boundary()
    for number in range(MOST // (200 * 1024) + 1):
        ledger.append(draft(f"large-{number}", object_json={"text": "x" * 200 * 1024}))
    provisioning.create_consumer("erp", PLANT, OFFICE, by="ada")
    token = clients.create("erp", Grant(scopes=["facts:fetch"], consumers=["erp"]), by="ada").token.text
    answer = get(site, "/api/v1/consumers/erp/facts", Authorization=f"Bearer {token}")
    assert (answer.status_code, len(answer.content) > MOST) == (200, True)
    assert "Content-Encoding" not in answer.headers
