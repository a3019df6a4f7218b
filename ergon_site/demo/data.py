"""The data of the demo: work in every state, a provider that is down, two zones, and users of every role."""

from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User

from engines import pipelines, policies, schedules, transactions
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.demo.tasks import FROM, TENANT, TO, Rank, release
from facts import artifacts, ledger, provisioning
from facts.models import Zone
from providers import calls
from providers.core.exchange import Who

BY = "demo"
CUSTOMER = ["customer.name", "customer.email", "customer.address"]
CERTIFICATE = b"Material certificate 3.1: bolts M8, 8.8, batch 4711\n"


def fill(password: str) -> None:
    """All of it, once."""
    erp = Grant(scopes=["transactions:submit", "transactions:read"])
    clients.create("erp", erp, by=BY, lifetime=timedelta(days=7))
    clients.create("press-line", Grant(zones=[FROM], target_zones=[TO]), by=BY)
    hashed = make_password(password)
    for role in Group.objects.all():
        person = User.objects.create(username=role.name.replace(" ", "-"), is_staff=True, password=hashed)
        person.groups.add(role)
    _fill_facts()
    # A quota that is nearly used up; the other provider is down, and its breaker opens by itself.
    calls.set_quota(Who(TENANT, Rank.provider_name, Rank.capability), limit=80, window=86400.0, by=BY)
    _fill_engines()


def _fill_facts() -> None:
    """Two zones: what the plant releases, the enterprise books, each order once."""
    for zone in (FROM, TO):
        if not Zone.objects.filter(name=zone).exists():
            provisioning.create_zone(zone, by=BY)
    provisioning.create_boundary(FROM, TO, by=BY)
    provisioning.create_consumer("orders", FROM, TO, by=BY)
    artifacts.put("certificates", "batch-4711.txt", BytesIO(CERTIFICATE), by=BY, media_type="text/plain")
    now = datetime.now(UTC)
    ledger.append_many([release(number, now) for number in range(40)])


def _fill_engines() -> None:
    """Pipelines with work in every state: done, failing in three ways, waiting for a time, waiting for a person."""
    retry = {"max_attempts": 2, "timeout": 1.0, "backoff": 0.2}
    body = {"loop": {"concurrency": {"value": 4}, "batch": {"size": 50}}, "steps": {"process": {"retry": retry}}}
    policies.write("impatient", body, kind="consumer", by=BY, reason="Invoices must not wait for long")
    retry = {"max_attempts": 5, "timeout": 10.0, "backoff": 1.0}
    carrier = {"loop": {"concurrency": {"value": 4}}, "steps": {"process": {"retry": retry}}}
    policies.write("patient", carrier, kind="consumer", by=BY, reason="The carrier answers in the end")
    for name, plan in {
        "invoices": pipelines.Plan(task="demo.invoices", policy="impatient", redacted=["iban"]),
        "archive": pipelines.Plan(task="demo.invoices", redacted=["iban"]),
        "notifications": pipelines.Plan(task="demo.notifications", direction="outbound", redacted=["to"]),
        "shop": pipelines.Plan(task="demo.shop", keep_succeeded_days=1),
        "shop-orders": pipelines.Plan(task="demo.shop_orders", keep_succeeded_days=1, redacted=CUSTOMER),
        "shop-parcels": pipelines.Plan(
            task="demo.shop_parcels", policy="patient", keep_succeeded_days=1, redacted=["to.name", "to.address"]
        ),
        "rankings": pipelines.Plan(task="demo.rankings"),
        "reports": pipelines.Plan(executor="reports"),
        "orders": pipelines.Plan(task="demo.orders", connector="facts"),
        "releases": pipelines.Plan(task="demo.releases"),
    }.items():
        pipelines.create(name, plan, by=BY)
    for pipeline, drafts in _drafts().items():
        transactions.submit_many(pipeline, drafts)
    pipelines.pause("archive", by=BY, reason="The archive is being moved to another disk")
    for name, cron, pipeline, payload in (
        ("totals", "*/5 * * * *", "notifications", {"to": "finance", "about": "totals"}),
        ("tea", "0 */2 * * *", "rankings", {"provider": "rank", "keyword": "tea"}),
        ("pages", "*/5 * * * *", "rankings", {"provider": "crawl", "keyword": "pages"}),
        ("shift", "* * * * *", "releases", {}),
        ("customers", "* * * * *", "shop", {}),
    ):
        schedules.create(name, schedules.Plan(pipeline=pipeline, cron=cron, payload=payload), by=BY)


def _drafts() -> dict[str, list[dict[str, Any]]]:
    later = datetime.now(UTC) + timedelta(hours=6)
    return {
        "invoices": [
            *({"payload": _invoice(number), "correlation_id": f"run-{number // 100}"} for number in range(400)),
            *({"payload": _invoice(number, customer="unknown")} for number in range(400, 412)),
            *({"payload": _invoice(number, amount="twelve")} for number in range(412, 420)),
            *({"payload": _invoice(number, takes=3)} for number in range(420, 422)),
            *({"payload": _invoice(number), "available_at": later} for number in range(422, 430)),
        ],
        "archive": [{"payload": _invoice(number)} for number in range(900, 925)],
        "rankings": [
            *({"payload": {"provider": "rank", "keyword": f"keyword {number}"}} for number in range(60)),
            *({"payload": {"provider": "crawl", "keyword": f"page {number}"}} for number in range(6)),
        ],
        "reports": [
            *({"payload": {"function": "sales", "args": [f"week {number}"], "kwargs": {}}} for number in range(8)),
            {"payload": {"function": "forecast", "args": ["week 53"], "kwargs": {}}},
        ],
        "shop": [{"payload": {}}],
        "notifications": [{"payload": {"to": "finance", "about": f"invoice {number}"}} for number in range(40)],
    }


def _invoice(number: int, **changes: Any) -> dict[str, Any]:
    amount = f"{17 + number * 3 % 400}.{number % 100:02}"
    invoice = {"number": f"R-{number:05}", "customer": f"C-{number % 37:03}", "amount": amount}
    return {**invoice, "iban": f"DE{number % 97:02} 5001 0517 0000 {number:04}", **changes}
