"""The engines' addresses. An id may hold slashes, so what ends in a verb stands before what is an id alone."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from engines.api import bulk, dead_letters, letter_groups as groups, pipelines, policies, transactions


class IdConverter(StringConverter):
    """An id as one part of an address or, if it holds slashes, as several."""

    regex = r"[^\x00]{1,200}"


class NameConverter(StringConverter):
    """Names of pipelines and policies in addresses."""

    regex = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


register_converter(IdConverter, "id")
register_converter(NameConverter, "name")

urlpatterns = [
    path("transactions", transactions.TransactionsView.as_view(), name="transactions"),
    path("transactions/batch", transactions.BatchView.as_view(), name="transactions-batch"),
    path("transactions/<id:uid>/explain", transactions.ExplainView.as_view(), name="transaction-explain"),
    path("transactions/<id:uid>/cancel", transactions.CancelView.as_view(), name="transaction-cancel"),
    path("transactions/<id:uid>/replay", transactions.ReplayView.as_view(), name="transaction-replay"),
    path("transactions/<id:uid>", transactions.TransactionView.as_view(), name="transaction"),
    path("pipelines", pipelines.PipelinesView.as_view(), name="pipelines"),
    path("pipelines/<name:name>", pipelines.PipelineView.as_view(), name="pipeline"),
    path("pipelines/<name:name>/amend", pipelines.AmendView.as_view(), name="pipeline-amend"),
    path("pipelines/<name:name>/pause", pipelines.PauseView.as_view(), name="pipeline-pause"),
    path("pipelines/<name:name>/resume", pipelines.ResumeView.as_view(), name="pipeline-resume"),
    path("schedules", pipelines.SchedulesView.as_view(), name="schedules"),
    path("schedules/<name:name>", pipelines.ScheduleView.as_view(), name="schedule"),
    path("schedules/<name:name>/pause", pipelines.PauseScheduleView.as_view(), name="schedule-pause"),
    path("schedules/<name:name>/resume", pipelines.ResumeScheduleView.as_view(), name="schedule-resume"),
    path("dead-letters", dead_letters.DeadLettersView.as_view(), name="dead-letters"),
    path("dead-letters/<int:letter_id>", dead_letters.DeadLetterView.as_view(), name="dead-letter"),
    path("dead-letters/<int:letter_id>/replay", dead_letters.ReplayLetterView.as_view(), name="dead-letter-replay"),
    path("dead-letters/<int:letter_id>/discard", dead_letters.DiscardLetterView.as_view(), name="dead-letter-discard"),
    path("dead-letter-groups", groups.GroupsView.as_view(), name="dead-letter-groups"),
    path("dead-letter-groups/<int:group_id>", groups.GroupView.as_view(), name="dead-letter-group"),
    path("dead-letter-groups/<int:group_id>/mute", groups.MuteView.as_view(), name="dead-letter-group-mute"),
    path("dead-letter-groups/<int:group_id>/resolve", groups.ResolveView.as_view(), name="dead-letter-group-resolve"),
    path("dead-letter-groups/<int:group_id>/reopen", groups.ReopenView.as_view(), name="dead-letter-group-reopen"),
    path("dead-letter-groups/<int:group_id>/replay", groups.ReplayAllView.as_view(), name="dead-letter-group-replay"),
    path(
        "dead-letter-groups/<int:group_id>/discard", groups.DiscardAllView.as_view(), name="dead-letter-group-discard"
    ),
    path("bulk-operations", groups.OperationsView.as_view(), name="bulk-operations"),
    *bulk.addresses(),
    path("bulk-operations/<int:operation_id>", groups.OperationView.as_view(), name="bulk-operation"),
    path("bulk-operations/<int:operation_id>/items", groups.ItemsView.as_view(), name="bulk-operation-items"),
    path("bulk-operations/<int:operation_id>/pause", groups.PauseOperationView.as_view(), name="bulk-operation-pause"),
    path(
        "bulk-operations/<int:operation_id>/resume", groups.ResumeOperationView.as_view(), name="bulk-operation-resume"
    ),
    path(
        "bulk-operations/<int:operation_id>/cancel", groups.CancelOperationView.as_view(), name="bulk-operation-cancel"
    ),
    path("policies", policies.PoliciesView.as_view(), name="policies"),
    path("policies/<name:name>", policies.PolicyView.as_view(), name="policy"),
    path("policies/<name:name>/rehearsals", policies.RehearsalsView.as_view(), name="policy-rehearsals"),
    path("policies/<name:name>/rehearsals/<int:number>", policies.RehearsalView.as_view(), name="policy-rehearsal"),
    path("policies/<name:name>/versions", policies.VersionsView.as_view(), name="policy-versions"),
    path(
        "policies/<name:name>/versions/<int:number>/activate",
        policies.ActivateView.as_view(),
        name="policy-version-activate",
    ),
]
