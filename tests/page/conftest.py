"""A real browser on a real fleet. Skipped, with the reason, where there is no Chromium."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.api import Api
from tests.support.controlled import controlled
from tests.support.harness import Fleet, Workload

#: a busy machine takes its time
WAIT_MS = 60_000
expect.set_options(timeout=WAIT_MS)

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole run: while it is open, its event loop is this thread's, and others cannot have their own."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def running(
    browser: Browser, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fleet, Api, Workload]]:
    with controlled(tmp_path_factory.mktemp("page"), kafka.bootstrap_servers, f"t{uuid.uuid4().hex[:8]}") as found:
        yield found


class Screen:
    """A page of the browser that remembers everything it complained about."""

    def __init__(self, page: Page, url: str, directory: Path) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        #: complaints that a test expects: the browser notes every refused request
        self.allowed: tuple[str, ...] = ()
        page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._only_ours)

    def _only_ours(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.complaints.append(f"loads {request.url}")

    def go(self, path: str, heading: str) -> Page:
        self.page.goto(f"{self.url}/#/{path}")
        self.page.get_by_role("heading", name=heading, exact=True).first.wait_for()
        return self.page

    def check(self) -> None:
        wrong = [c for c in self.complaints if not any(one in c for one in self.allowed)]
        assert wrong == []
        width = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, "the page is wider than its window"


@pytest.fixture
def screen(browser: Browser, running: tuple[Fleet, Api, Workload], tmp_path: Path) -> Iterator[Screen]:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(WAIT_MS)
    found = Screen(context.new_page(), running[1].url, tmp_path)
    yield found
    found.check()
    context.close()


@pytest.fixture
def phone(browser: Browser, running: tuple[Fleet, Api, Workload], tmp_path: Path) -> Iterator[Screen]:
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark", has_touch=True)
    context.set_default_timeout(WAIT_MS)
    found = Screen(context.new_page(), running[1].url, tmp_path)
    yield found
    found.check()
    context.close()
