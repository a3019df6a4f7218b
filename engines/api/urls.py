"""The engines' addresses. An id may hold slashes, so what ends in a verb stands before what is an id alone."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from engines.api.dead_letters import DeadLettersView, DeadLetterView, DiscardLetterView, ReplayLetterView
from engines.api.letter_groups import (
    CancelOperationView,
    DiscardAllView,
    GroupsView,
    GroupView,
    ItemsView,
    MuteView,
    OperationsView,
    OperationView,
    PauseOperationView,
    ReopenView,
    ReplayAllView,
    ResolveView,
    ResumeOperationView,
)
from engines.api.pipelines import (
    AmendView,
    PauseScheduleView,
    PauseView,
    PipelinesView,
    PipelineView,
    ResumeScheduleView,
    ResumeView,
    SchedulesView,
    ScheduleView,
)
from engines.api.policies import ActivateView, PoliciesView, PolicyView, VersionsView
from engines.api.transactions import (
    BatchView,
    CancelView,
    ExplainView,
    ReplayView,
    TransactionsView,
    TransactionView,
)


class IdConverter(StringConverter):
    """An id as one part of an address or, if it holds slashes, as several."""

    regex = r"[^\x00]{1,200}"


class NameConverter(StringConverter):
    """Names of pipelines and policies in addresses."""

    regex = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


register_converter(IdConverter, "id")
register_converter(NameConverter, "name")

urlpatterns = [
    path("transactions", TransactionsView.as_view(), name="transactions"),
    path("transactions/batch", BatchView.as_view(), name="transactions-batch"),
    path("transactions/<id:uid>/explain", ExplainView.as_view(), name="transaction-explain"),
    path("transactions/<id:uid>/cancel", CancelView.as_view(), name="transaction-cancel"),
    path("transactions/<id:uid>/replay", ReplayView.as_view(), name="transaction-replay"),
    path("transactions/<id:uid>", TransactionView.as_view(), name="transaction"),
    path("pipelines", PipelinesView.as_view(), name="pipelines"),
    path("pipelines/<name:name>", PipelineView.as_view(), name="pipeline"),
    path("pipelines/<name:name>/amend", AmendView.as_view(), name="pipeline-amend"),
    path("pipelines/<name:name>/pause", PauseView.as_view(), name="pipeline-pause"),
    path("pipelines/<name:name>/resume", ResumeView.as_view(), name="pipeline-resume"),
    path("schedules", SchedulesView.as_view(), name="schedules"),
    path("schedules/<name:name>", ScheduleView.as_view(), name="schedule"),
    path("schedules/<name:name>/pause", PauseScheduleView.as_view(), name="schedule-pause"),
    path("schedules/<name:name>/resume", ResumeScheduleView.as_view(), name="schedule-resume"),
    path("dead-letters", DeadLettersView.as_view(), name="dead-letters"),
    path("dead-letters/<int:letter_id>", DeadLetterView.as_view(), name="dead-letter"),
    path("dead-letters/<int:letter_id>/replay", ReplayLetterView.as_view(), name="dead-letter-replay"),
    path("dead-letters/<int:letter_id>/discard", DiscardLetterView.as_view(), name="dead-letter-discard"),
    path("dead-letter-groups", GroupsView.as_view(), name="dead-letter-groups"),
    path("dead-letter-groups/<int:group_id>", GroupView.as_view(), name="dead-letter-group"),
    path("dead-letter-groups/<int:group_id>/mute", MuteView.as_view(), name="dead-letter-group-mute"),
    path("dead-letter-groups/<int:group_id>/resolve", ResolveView.as_view(), name="dead-letter-group-resolve"),
    path("dead-letter-groups/<int:group_id>/reopen", ReopenView.as_view(), name="dead-letter-group-reopen"),
    path("dead-letter-groups/<int:group_id>/replay", ReplayAllView.as_view(), name="dead-letter-group-replay"),
    path("dead-letter-groups/<int:group_id>/discard", DiscardAllView.as_view(), name="dead-letter-group-discard"),
    path("bulk-operations", OperationsView.as_view(), name="bulk-operations"),
    path("bulk-operations/<int:operation_id>", OperationView.as_view(), name="bulk-operation"),
    path("bulk-operations/<int:operation_id>/items", ItemsView.as_view(), name="bulk-operation-items"),
    path("bulk-operations/<int:operation_id>/pause", PauseOperationView.as_view(), name="bulk-operation-pause"),
    path("bulk-operations/<int:operation_id>/resume", ResumeOperationView.as_view(), name="bulk-operation-resume"),
    path("bulk-operations/<int:operation_id>/cancel", CancelOperationView.as_view(), name="bulk-operation-cancel"),
    path("policies", PoliciesView.as_view(), name="policies"),
    path("policies/<name:name>", PolicyView.as_view(), name="policy"),
    path("policies/<name:name>/versions", VersionsView.as_view(), name="policy-versions"),
    path("policies/<name:name>/versions/<int:number>/activate", ActivateView.as_view(), name="policy-version-activate"),
]
