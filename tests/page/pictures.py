"""Takes the pictures of a running fleet: `python -m tests.page.pictures http://127.0.0.1:8080 docs/pictures`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


def _open(browser: Browser, url: str, size: dict[str, int], scheme: str) -> Page:
    context = browser.new_context(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1.5 if size is WIDE else 2,
    )
    page = context.new_page()
    page.goto(url)
    page.locator("#live.on").wait_for()
    return page


def _take(page: Page, path: Path) -> None:
    # what is asked for when a page opens has come, and the pipes have moved
    page.wait_for_timeout(6000)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(300)
    page.screenshot(path=path)
    page.context.close()


def main() -> None:
    url, directory = sys.argv[1], Path(sys.argv[2])
    only = sys.argv[3:]
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, path, size, scheme in (
            ("fleet", "", WIDE, "light"), ("fleet-dark", "", WIDE, "dark"), ("source", "sources/rac", WIDE, "light"),
            ("transactions", "transactions", WIDE, "light"), ("lake", "lake", WIDE, "dark"),
            ("add", "add", WIDE, "light"),
            ("phone", "", PHONE, "light"), ("phone-source", "sources/rac", PHONE, "dark"),
        ):  # fmt: skip
            if only and name not in only:
                continue
            page = _open(browser, f"{url}/#/{path}", size, scheme)
            page.set_default_timeout(120_000)
            if name == "transactions":
                page.locator("tr.link").nth(1).click()
                page.locator(".opened h3").first.wait_for()
            elif name == "lake":
                page.locator("tr.link").nth(2).click()
                page.locator("#rows table").wait_for()
            elif "source" in name:
                page.get_by_role("cell", name="BANK.ACCOUNTS").wait_for()
            elif name == "add":
                page.get_by_role("button", name="postgres").click()
            _take(page, directory / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
