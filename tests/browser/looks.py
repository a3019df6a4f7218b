"""How a page is looked at, and whether it fits."""

import pytest
from playwright.sync_api import Page

everywhere = pytest.mark.parametrize("context", ["wide light", "narrow dark"], indirect=True)


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))
