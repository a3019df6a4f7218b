"""A browser that looks at the console: one for all modules, since it takes long to start and to load what pages share.

While it lives, its event loop is that of this thread: it ends with the last module, so that other tests run their own.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.processes import Site

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-sync", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
WIDTHS = {"wide": 1280, "narrow": 400}
FORGET = "location.protocol.startsWith('http') && localStorage.clear()"
# How long a busy machine may take to show what it was asked for.
expect.set_options(timeout=30_000)
# The first has no window to draw: it shows the same pages in half the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.fail("needs Chromium: install the package chromium-headless-shell, as `make test` does for root")
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        # The browser's event loop runs in this thread; the tests' own queries are meant all the same.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        # Those of the thread while the event loop runs, which nobody else closes.
        connections.close_all()
        browser.close()
        # The tests' own queries have had a connection of their own while that event loop ran.
        connections.close_all()


@pytest.fixture(scope="package")
def contexts() -> dict[str, BrowserContext]:
    """One for each look, for all tests: half of a first page's time goes into its scripts and fonts."""
    return {}


@pytest.fixture
def context(
    request: pytest.FixtureRequest, chromium: Browser, contexts: dict[str, BrowserContext], site: Site
) -> Iterator[BrowserContext]:
    chosen = getattr(request, "param", "wide light")
    if chosen not in contexts:
        width, scheme = chosen.split()
        look: dict[str, Any] = {"viewport": {"width": WIDTHS[width], "height": 800}, "color_scheme": scheme}
        contexts[chosen] = chromium.new_context(base_url=site.url, **look)
    yield contexts[chosen]
    contexts[chosen].clear_cookies()
    if contexts[chosen].pages:
        contexts.pop(chosen).close()


@pytest.fixture
def page(context: BrowserContext, site: Site) -> Iterator[Page]:
    """A page that fails the test if anything is fetched from elsewhere or a script breaks."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("request", lambda made: None if made.url.startswith((site.url, "data:")) else wrong.append(made.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    page.evaluate(FORGET)
    # Who has set the clock has set it for the whole context, for good: the page stays, and both go.
    if page.evaluate("setTimeout.toString().includes('[native code]')"):
        page.close()
    assert wrong == []


@pytest.fixture
def inside(page: Page, browse: Client, site: Site) -> Page:
    """A page that is logged in already."""
    session = browse.cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": site.url}])
    return page
