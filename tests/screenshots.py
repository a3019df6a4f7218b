"""`python -m tests.screenshots`: the pictures of the documentation, taken of a demo of its own."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.processes import ROOT, free_port, wait_for

PICTURE = ROOT / "docs" / "dashboard.png"
LARGEST = 150_000
SIZE = {"width": 1280, "height": 860}
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def main() -> None:
    port = free_port()
    data = ROOT / "var" / "demo" / str(port)
    command = [sys.executable, "-m", "ergon_site.demo", "--port", str(port)]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    with subprocess.Popen(command, cwd=ROOT, env=clean, start_new_session=True) as demo:
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz", within=180)
            take(f"http://127.0.0.1:{port}", PICTURE)
        finally:
            os.killpg(demo.pid, signal.SIGINT)
            demo.wait(timeout=90)
    shutil.rmtree(data, ignore_errors=True)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.relative_to(ROOT)}: {size:,} bytes")
    if size > LARGEST:
        sys.exit(f"more than {LARGEST:,} bytes")


def take(address: str, picture: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport=SIZE, color_scheme="light", base_url=address)  # type: ignore[arg-type]
        page.goto("/")
        page.get_by_label("Username").fill("admin")
        page.get_by_label("Password").fill("demo")
        page.get_by_role("button", name="Log in").click()
        wait_until_worked_off(page)
        page.goto("/admin/")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=picture, animations="disabled")
        chromium.close()


def wait_until_worked_off(page: Page) -> None:
    """Until the demo's invoices have ended, so that the dashboard has something to show."""
    page.goto("/admin/engines/deadlettergroup/")
    while page.get_by_text("LookupError").count() == 0:
        page.wait_for_timeout(500)
        page.reload()


if __name__ == "__main__":
    main()
