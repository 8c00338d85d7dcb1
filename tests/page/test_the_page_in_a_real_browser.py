"""Each page, each action, an error; light and dark, phone width, keyboard; and never a complaint in the console."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Screen
from tests.support.api import Api
from tests.support.harness import Fleet, Workload

Running = tuple[Fleet, Api, Workload]


def test_fleet_draws_the_flow_and_goes_on_live(screen: Screen, running: Running) -> None:
    fleet, _, work = running
    page = screen.go("", "Fleet")
    flow = page.get_by_label(f"Group {fleet.group}")
    expect(flow.get_by_role("link", name=fleet.sources[0])).to_contain_text("running")
    expect(flow).to_contain_text("simulated_rac · 2 threads")
    expect(flow.locator("svg.pipes path")).to_have_count(2)
    before = len(fleet.histories()[fleet.sources[0]])
    expect(flow.locator(".gsn").first).to_have_text(f"{before:,}")
    work.run(work.bank.started + 20)
    after = len(fleet.histories()[fleet.sources[0]])
    expect(flow.locator(".gsn").first).to_have_text(f"{after:,}")
    expect(page.locator("#live")).to_have_text("live")


def _act(screen: Screen, action: str, button: str, reason: str = "a test") -> None:
    page = screen.page
    page.locator(f"[data-action={action}]").first.click()
    page.get_by_label(re.compile("Reason")).fill(reason)
    page.get_by_role("dialog").get_by_role("button", name=button).click()


def test_a_source_is_paused_resumed_and_restarted(screen: Screen, running: Running) -> None:
    source = running[0].sources[0]
    page = screen.go(f"sources/{source}", source)
    expect(page.locator(".lane")).to_have_count(2)
    expect(page.get_by_role("cell", name="BANK.ACCOUNTS")).to_be_visible()
    expect(page.get_by_text("Position in Kafka")).to_be_visible()
    _act(screen, "pause", "Pause")
    expect(page.locator("h1 + .pill")).to_have_text("paused")
    expect(page.get_by_text("“a test”")).to_be_visible()
    _act(screen, "resume", "Resume")
    expect(page.locator("h1 + .pill")).to_have_text("running")
    _act(screen, "restart", "Restart")
    expect(page.get_by_text("Restart: accepted")).to_be_visible()
    assert page.locator("[data-action=reset]").is_disabled(), "only of a stopped source"


def test_a_silent_thread_is_the_holder_by_name_and_can_be_excluded(screen: Screen, running: Running) -> None:
    fleet, _, work = running
    source = fleet.sources[0]
    work.cluster.stop(2)
    work.run(work.bank.started + 10)
    page = screen.go(f"sources/{source}", source)
    expect(page.locator(".lane.holds")).to_contain_text("Thread 2")
    page.goto(f"{screen.url}/#/")
    expect(page.locator(".note.warn")).to_contain_text(f"{source}’s thread 2 holds the watermark")
    page.goto(f"{screen.url}/#/transactions/{fleet.group}")
    expect(page.locator(".note.warn")).to_contain_text(f"wait for {source}’s thread 2")
    page.goto(f"{screen.url}/#/sources/{source}")
    page.locator(".lane").nth(1).get_by_role("button", name="Exclude").click()
    page.get_by_label(re.compile("Reason")).fill("its node is gone")
    page.get_by_role("dialog").get_by_role("button", name="exclude").click()
    expect(page.locator(".lane.excluded")).to_have_count(1)
    page.get_by_role("button", name="Include").click()
    page.get_by_label(re.compile("Reason")).fill("it is back")
    page.get_by_role("dialog").get_by_role("button", name="include").click()
    expect(page.locator(".lane.excluded")).to_have_count(0)
    work.cluster.restart(2)
    work.run(work.bank.started + 10)
    expect(page.locator(".lane.holds")).to_have_count(0)


def test_an_action_that_is_refused_says_why(screen: Screen, running: Running) -> None:
    source = running[0].sources[0]
    screen.allowed = ("409",)
    page = screen.go(f"sources/{source}", source)
    page.route("**/pause", lambda route: route.fulfill(
        status=409, content_type="application/problem+json",
        body='{"title":"conflict","status":409,"detail":"somebody else changed it","hint":"look at it again"}',
    ))  # fmt: skip
    _act(screen, "pause", "Pause")
    expect(page.locator(".toast.bad")).to_have_text("somebody else changed it look at it again")


def test_transactions_are_listed_and_opened(screen: Screen, running: Running) -> None:
    fleet = running[0]
    page = screen.go(f"transactions/{fleet.group}", "Transactions")
    rows = page.locator("tr.link")
    expect(rows).to_have_count(25)
    rows.nth(2).click()
    expect(page.locator(".opened")).to_contain_text("committed")
    expect(page.locator(".opened h3").first).to_contain_text("BANK.")
    expect(page.locator(".opened .op").first).to_be_visible()
    page.keyboard.press("Escape")
    rows.nth(2).locator("button").press("Enter")
    expect(page.locator(".opened")).to_have_count(0)


def test_the_lake_shows_tables_rows_and_landings(screen: Screen, running: Running) -> None:
    page = screen.go(f"lake/{running[0].group}", "Lake")
    page.get_by_role("button", name="made.shop.people").click()
    expect(page.locator("#rows")).to_contain_text("person 49")
    expect(page.locator("section", has_text="Landings").last.locator("tbody tr")).to_have_count(5)


def test_a_source_is_added_by_the_form_after_its_errors_were_shown(screen: Screen, running: Running) -> None:
    fleet, api, _ = running
    screen.allowed = ("422",)
    name = f"{fleet.sources[0]}-by-form"
    page = screen.go("add", "Add a source")
    page.get_by_role("button", name=re.compile("^simulated_rac")).click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Group").select_option(fleet.group)
    page.locator("[data-action=test]").click()
    expect(page.locator(".field.wrong")).to_contain_text("Field required")
    page.get_by_label(re.compile("^directory")).fill("/nowhere")
    page.locator("[data-action=test]").click()
    expect(page.locator(".checks .bad")).to_contain_text("start the cluster")
    page.get_by_label(re.compile("^directory")).fill(str(fleet.clusters[fleet.sources[0]]))
    page.locator("[data-action=test]").click()
    expect(page.locator(".checks .good")).to_be_visible()
    page.locator("[data-action=add]").click()
    page.get_by_role("heading", name=name).wait_for()
    assert api.get(f"/v1/sources/{name}/config")["group"] == fleet.group
    _act(screen, "remove", "Remove")
    page.get_by_role("heading", name="Fleet", exact=True).wait_for()
    assert name not in api.get("/v1/sources")


def test_every_kind_has_a_form(screen: Screen, running: Running) -> None:
    page = screen.go("add", "Add a source")
    for kind in (one["kind"] for one in running[1].get("/v1/source-types") if one["is_available"]):
        page.get_by_role("button", name=re.compile(f"^{kind}")).click()
        expect(page.get_by_role("heading", name="3 · Connection")).to_be_visible()
        page.get_by_text(re.compile("more settings")).click()
        assert page.locator(".field").count() > 3, kind


def test_keys_go_from_page_to_page_and_the_theme_stays(screen: Screen) -> None:
    page = screen.go("", "Fleet")
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_role("heading", name="Lake", exact=True).wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Transactions")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("path", ["", "sources/{source}", "transactions", "lake", "add"])
def test_all_of_it_fits_a_phone(phone: Screen, running: Running, path: str) -> None:
    page = phone.page
    page.goto(f"{phone.url}/#/{path.format(source=running[0].sources[0])}")
    page.locator("main h1").wait_for()
    expect(page.locator("#live")).to_have_text("live")


def test_the_api_is_described_on_a_page(screen: Screen) -> None:
    screen.page.goto(f"{screen.url}/docs")
    expect(screen.page.get_by_role("heading", name="API", exact=True)).to_be_visible()
    screen.page.get_by_text("/v1/sources/{name}/pause").click()
    expect(screen.page.get_by_text("Stop reading its log")).to_be_visible()


def test_it_says_when_the_service_is_gone_and_when_it_is_back(screen: Screen, running: Running) -> None:
    _, api, _ = running
    screen.allowed = ("ERR_", "Failed to load", "Failed to fetch")
    page = screen.go("", "Fleet")
    api.service.kill()
    expect(page.locator("#live")).to_have_text("not connected")
    api.service.start()
    api.wait()
    expect(page.locator("#live")).to_have_text("live")
