"""Replay, edit and replay, reveal: what the pages of transactions and of dead letters share."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from unfold.decorators import action

from engines.admin import parts
from engines.admin.forms import PayloadForm
from engines.admin.parts import Act, ListedPage
from engines.core.errors import EngineError
from ergon_site.access.console.pages import ReasonForm, actor
from ergon_site.access.core import differences
from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import sentence

REPLAY_BUTTON = Act("Replay", "replay", Right.OPERATE)
EDIT_BUTTON = Act("Edit and replay", "edit", Right.LEAD, is_dialog=False)
REVEAL_BUTTON = Act("Reveal", "reveal", Right.OPERATE, is_dialog=False)


class ReplayablePage(ListedPage):
    """A page of rows with a payload that can be replayed, edited and revealed."""

    replay_path = "replay/"

    def details(self, request: HttpRequest, row: Any, *, is_revealed: bool = False) -> dict[str, Any]:
        raise NotImplementedError

    def payload_of(self, row: Any) -> tuple[Any, list[str]]:
        """The payload that a replay uses, and its hidden fields."""
        raise NotImplementedError

    def replay_row(self, row: Any, *, by: str, reason: str, **edited: Any) -> str:
        """Replay a row; the address of the page of what runs now."""
        raise NotImplementedError

    def reveal_row(self, row: Any, *, by: str) -> None:
        """Write down that somebody has seen the hidden fields."""
        raise NotImplementedError

    def carry_out_replay(self, request: HttpRequest, form: ReasonForm, row: Any, success: str) -> HttpResponse:
        def verb() -> str:
            return self.replay_row(row, by=actor(request), reason=form.cleaned_data["reason"])

        return self.carry_out(request, verb, success, row.pk)

    @action(url_path="edit", permissions=["lead"])
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The editor; a payload that is nested beyond all measure leads back."""
        row = self.row(request, object_id)
        try:
            return self._editor(request, row)
        except RecursionError:
            messages.error(request, "The payload is nested too deeply to be edited here.")
            return HttpResponseRedirect(self.address(row.pk))

    def _editor(self, request: HttpRequest, row: Any) -> HttpResponse:
        """The form; once its content is valid also what differs, and only what was seen so is sent."""
        payload, redacted = self.payload_of(row)
        form, changes = PayloadForm(payload, redacted, request.POST or None), None
        if form.is_valid():
            edited, why = form.cleaned_data["payload"], form.cleaned_data["reason"]
            changes = parts.changes(differences.changes(payload, edited), redacted)
            if "send" in request.POST and form.cleaned_data["seen"] == form.digest():
                try:
                    address = self.replay_row(row, by=actor(request), reason=why, payload=edited)
                except EngineError as error:
                    form.add_error(None, sentence(error))
                else:
                    messages.success(request, "Replayed with the edited payload: this is the new transaction.")
                    return HttpResponseRedirect(address)
            form.data = {**request.POST.dict(), "seen": form.digest()}
        context = {"form": form, "redacted": redacted, "address": self.address(row.pk), "changes": changes}
        return self.page(request, "console/edit_payload.html", f"Edit and replay {row}", row, **context)

    @action(url_path="reveal", permissions=["operate"])
    def reveal(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        row = self.row(request, object_id)
        self.reveal_row(row, by=actor(request))
        return self.page(request, self.detail_template, str(row), row, **self.details(request, row, is_revealed=True))
