"""Policies and pipelines in a real browser."""

import pytest
from playwright.sync_api import Page, expect

from engines import pipelines, policies
from engines.models import Pipeline
from engines.pipelines import Plan
from ergon_site.access.models import AuditEntry
from tests.browser.looks import everywhere, fits

# The browser sees pages, not databases: the other console tests run on both.
pytestmark = pytest.mark.once


@everywhere
def test_a_policy_is_edited_and_the_drawing_follows(inside: Page) -> None:
    policies.write("patient", {}, kind="consumer", by="tests", reason="for the slow provider")
    inside.goto(f"/admin/engines/policy/{policies.find('patient').pk}/change/")
    drawing = inside.locator("#outlook-steps-process")
    expect(drawing).to_contain_text("One attempt of any length")
    inside.locator("[name='steps.process.retry.max_attempts']").fill("4")
    inside.locator("[name='steps.process.retry.backoff']").fill("2")
    expect(drawing).to_contain_text("4 attempts of any length, 14 s of waiting in between.")
    expect(drawing.locator(".ergon-attempt")).to_have_count(4)
    assert fits(inside)
    inside.get_by_role("button", name="Review changes").click()
    expect(inside.locator("ins").last).to_have_text("2 s")
    assert fits(inside)
    inside.get_by_label("Reason").fill("it answers slowly")
    inside.get_by_role("button", name="Save as version 2").click()
    expect(inside.get_by_text("Version 2 is active.")).to_be_visible()
    version = inside.locator(".ergon-table tbody tr").first
    expect(version).to_contain_text("it answers slowly")
    expect(version).to_contain_text("steps.process.retry.max_attempts")
    assert policies.find("patient").active.author == "ada"  # type: ignore[union-attr]


@everywhere
def test_a_pipeline_is_paused_and_resumed(inside: Page) -> None:
    pipeline = pipelines.create("invoices", Plan(task="invoices.import"), by="tests")
    inside.goto(f"/admin/engines/pipeline/{pipeline.pk}/change/")
    assert fits(inside)
    inside.get_by_role("button", name="Pause", exact=True).click()
    inside.get_by_label("Reason").fill("maintenance until two")
    inside.get_by_role("dialog").get_by_role("button", name="Pause the pipeline").click()
    expect(inside.get_by_text("Paused: no new transactions start")).to_be_visible()
    expect(inside.locator(".ergon-notice")).to_contain_text("maintenance until two")
    assert Pipeline.objects.get().is_paused
    inside.get_by_role("button", name="Resume", exact=True).click()
    inside.get_by_label("Reason").fill("it is over")
    inside.get_by_role("dialog").get_by_role("button", name="Resume the pipeline").click()
    expect(inside.get_by_text("Resumed: pending transactions start again.")).to_be_visible()
    assert not Pipeline.objects.get().is_paused
    assert AuditEntry.objects.get(action="pipeline.resume").reason == "it is over"
