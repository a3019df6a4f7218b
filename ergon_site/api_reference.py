"""The page of the API reference, and a summary for each operation in it."""

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.templatetags.static import static

from ergon_site.console_templates import rendered

ASSETS = "drf_spectacular_sidecar/swagger-ui-dist/"
# What an operation's id says by its last part, where the rest says about what.
ACTS = {
    "list": "List {}",
    "create": "Create a {}",
    "retrieve": "Show a {}",
    "cancel_create": "Cancel a {}",
    "close_create": "Close the gate of a {}",
    "open_create": "Open the gate of a {}",
    "limit_create": "Set the limits of a {}",
    "pause_create": "Pause a {}",
    "resume_create": "Resume a {}",
    "amend_create": "Change a {}",
    "replay_create": "Replay a {}",
    "discard_create": "Discard a {}",
    "mute_create": "Mute a {}",
    "reopen_create": "Reopen a {}",
    "resolve_create": "Resolve a {}",
    "items_list": "List the results of a {}",
    "explain_retrieve": "Explain a {}",
    "batch_create": "Submit many {} at once",
    "versions_create": "Write a version of a {}",
    "versions_activate_create": "Activate a version of a {}",
}
NOUNS = {
    "audit_entries": ("audit entry", "audit entries"),
    "boundaries": ("boundary", "boundaries"),
    "policies": ("policy", "policies"),
    "provider_policies": ("provider policy", "provider policies"),
    "dead_letter_groups": ("dead-letter group", "dead-letter groups"),
}
SUMMARIES = {
    "attention_acknowledge_create": "Acknowledge an item that needs attention",
    "attention_retrieve": "List the items that need attention",
    "attention_withdraw_create": "Withdraw an acknowledgement",
    "bulk_operations_artifacts_create": "Start a bulk operation on artifacts",
    "bulk_operations_dead_letter_groups_create": "Start a bulk operation on dead-letter groups",
    "bulk_operations_dead_letters_create": "Start a bulk operation on dead letters",
    "bulk_operations_pipelines_create": "Start a bulk operation on pipelines",
    "bulk_operations_schedules_create": "Start a bulk operation on schedules",
    "bulk_operations_transactions_create": "Start a bulk operation on transactions",
    "client_retrieve": "Show the calling client",
    "consumers_confirm_create": "Confirm facts",
    "consumers_facts_retrieve": "Fetch facts",
    "dead_letter_groups_discard_create": "Discard all dead letters of a group",
    "dead_letter_groups_replay_create": "Replay all dead letters of a group",
    "facts_batch_create": "Append many facts at once",
    "facts_create": "Append a fact",
    "objects_get": "Download an artifact",
    "objects_put": "Upload an artifact",
    "policies_rehearsals_create": "Rehearse a policy",
    "policies_rehearsals_retrieve": "Show a rehearsal of a policy",
    "provider_health_summary_retrieve": "Show the health of a tenant's providers",
    "provider_metrics_list": "List calls to providers",
    "providers_override_create": "Reset or force a breaker",
    "providers_quota_destroy": "Remove a quota",
    "providers_quota_update": "Set a quota",
    "providers_retrieve": "Show the state of a tenant's providers",
    "transactions_create": "Submit a transaction",
}


@login_not_required
@rendered
def reference(request: HttpRequest) -> HttpResponse:
    """The reference, open to all as the document is; with the console's colours and a way back to it."""
    assets = {"style": static(f"{ASSETS}swagger-ui.css"), "script": static(f"{ASSETS}swagger-ui-bundle.js")}
    return TemplateResponse(request, "console/api_reference.html", assets)


def add_summaries(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Give every operation a summary; its description says the rest."""
    for address, operations in result["paths"].items():
        for operation in operations.values():
            if text := summary(operation["operationId"], address):
                operation.setdefault("summary", text)
    return result


def summary(operation: str, address: str) -> str:
    """The summary by the operation's id; empty for one that is not of Ergon."""
    if operation in SUMMARIES:
        return SUMMARIES[operation]
    act = max((one for one in ACTS if operation.endswith(f"_{one}")), key=len, default="")
    many = operation.removesuffix(f"_{act}")
    if not act or many.replace("_", "-") not in address.split("/"):
        return ""
    one, several = NOUNS.get(many, (many.removesuffix("s").replace("_", " "), many.replace("_", " ")))
    return ACTS[act].format(several if act in {"list", "batch_create"} else one)
