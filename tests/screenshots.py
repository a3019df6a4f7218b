"""`python -m tests.screenshots`: the pictures of the documentation, taken of a demo of its own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

from playwright.sync_api import Page, sync_playwright

from tests.processes import ROOT, free_port, wait_for

PICTURES = ROOT / "docs" / "pictures"
LARGEST = 160_000
SIZE = {"width": 1280, "height": 720}
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TRANSACTIONS = "/admin/engines/transactionrecord/"


def dashboard(page: Page) -> None:
    page.goto("/admin/")


def search(page: Page) -> None:
    page.goto(f"{TRANSACTIONS}?q=pipeline:invoices state:failed error:customer")
    for box in page.locator("input.action-select").all()[:3]:
        box.check()


def transaction(page: Page) -> None:
    """One that called a provider, and failed."""
    page.goto(f"{TRANSACTIONS}?state=failed&pipeline=rankings")
    page.locator("tbody th a").first.click()
    page.get_by_role("heading", name="Timeline").wait_for()


def group(page: Page) -> None:
    page.goto("/admin/engines/deadlettergroup/?q=customer")
    page.locator("tbody th a").first.click()
    page.get_by_role("heading", name="Newest traceback").wait_for()


def rehearsal(page: Page) -> None:
    """Of the policy of the pipeline that fails most, with fewer attempts."""
    page.goto("/admin/engines/policy/")
    page.get_by_role("link", name="impatient", exact=True).click()
    page.get_by_role("button", name="Flaky API").click()
    page.get_by_label("Max attempts").first.fill("2")
    page.get_by_role("button", name="Review changes").click()
    page.get_by_text("Rehearsed with").wait_for()


SCENES: Mapping[str, Callable[[Page], None]] = {
    "dashboard": dashboard,
    "search": search,
    "transaction": transaction,
    "group": group,
    "rehearsal": rehearsal,
}


def main() -> None:
    port = free_port()
    data = ROOT / "var" / "demo" / str(port)
    command = [sys.executable, "-m", "ergon_site.demo", "--port", str(port)]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    with subprocess.Popen(command, cwd=ROOT, env=clean, start_new_session=True) as demo:
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz", within=180)
            take(f"http://127.0.0.1:{port}")
        finally:
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(timeout=90)
    shutil.rmtree(data, ignore_errors=True)
    for name in SCENES:
        size = (PICTURES / f"{name}.png").stat().st_size
        print(f"docs/pictures/{name}.png: {size:,} bytes")
        if size > LARGEST:
            sys.exit(f"more than {LARGEST:,} bytes")


def take(address: str) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport=SIZE, color_scheme="light", base_url=address)  # type: ignore[arg-type]
        page.goto("/")
        page.get_by_label("Username").fill("admin")
        page.get_by_label("Password").fill("demo")
        page.get_by_role("button", name="Log in").click()
        wait_until_worked_off(page)
        for name, scene in SCENES.items():
            scene(page)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
        chromium.close()


def wait_until_worked_off(page: Page) -> None:
    """Until the demo's invoices have ended, so that the dashboard has something to show."""
    page.goto("/admin/engines/deadlettergroup/")
    while page.get_by_text("LookupError").count() == 0:
        page.wait_for_timeout(500)
        page.reload()


if __name__ == "__main__":
    main()
