"""Twenty dead letters are selected and replayed in a real browser, by real processes; one fails again."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Page, expect

from engines.models import BulkOperation, DeadLetter
from tests.browser.looks import fits
from tests.commands import ask
from tests.console import records
from tests.durable_transactions import consumer
from tests.factories import make_pipeline
from tests.processes import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

LIST = "/admin/engines/deadletter/"


def test_twenty_letters_are_replayed_and_the_record_tells_of_the_one_that_fails_again(
    inside: Page,
    browse: Client,
    administrator: User,
) -> None:
    orders = make_pipeline("orders")
    left = records.fail(orders, {"n": 0})
    for number in range(1, 20):
        records.fail(orders, {"n": number})
    again = records.fail(orders, {"fail": "the bank said no once more"})
    inside.goto(LIST)
    bar = inside.locator("[data-selection]")
    expect(bar).to_be_hidden()
    inside.get_by_label("Select every row of this page").check()
    expect(bar.get_by_role("status")).to_have_text("21 dead letters selected")
    # By keyboard: the last one is not meant.
    inside.locator(f"tr[data-key='{left.pk}'] input.action-select[name=_selected_action]").focus()
    inside.keyboard.press("Space")
    expect(bar.get_by_role("status")).to_have_text("20 dead letters selected")
    assert inside.locator("#action-toggle").evaluate("box => box.indeterminate")
    bar.get_by_role("button", name="Replay").click()
    dialog = inside.get_by_role("dialog")
    expect(dialog).to_contain_text("20 would be replayed, none skipped.")
    dialog.get_by_label("Canary").fill("0")
    dialog.get_by_label("Per second").fill("500")
    dialog.get_by_label("Reason").fill("the bank is back")
    with consumer("orders"), consumer(command="maintain"):
        dialog.get_by_role("button", name="Replay 20 dead letters").click()
        expect(inside.get_by_text("Done: 20 of 20 dead letters; 1 failed again.")).to_be_visible(timeout=120_000)
        # Started, succeeded, failed again, still running.
        expect(inside.get_by_label("Replays").locator("dd")).to_have_text(["20", "19", "1", "0"])
        operation = BulkOperation.objects.get()
        eventually(lambda: BulkOperation.objects.filter(replays_failed=1).exists(), "maintenance has counted it")
    row = inside.get_by_role("row").filter(has_text=again.uid)
    expect(row).to_contain_text("failed again", ignore_case=True)
    assert fits(inside)
    told = ask("dead_letters", "operation", str(operation.pk))["replays"]
    assert (told["started"], told["succeeded"], told["failed"], told["running"]) == (20, 19, 1, 0)
    assert DeadLetter.objects.get(pk=left.pk).state == "open"
    inside.goto("/admin/engines/bulkoperation/")
    expect(inside.locator("#result_list")).to_contain_text("1 failed again")
