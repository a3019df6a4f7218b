"""Actions that ask before they act: a dialog where scripts run, a page of its own where they do not."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.decorators import action

from ergon_site.access.console.pages import ConsolePage, ReasonForm


def dialog_action(*, dialog: dict[str, Any], **terms: Any) -> Callable[[Callable[..., HttpResponse]], Any]:
    """The theme's decorator for an action with a dialog.

    `dialog` has the `title`, which is also what the button that acts says unless there is a `submit`, a `description`,
    and the `form_class` of what is asked, which is the reason if none is named. With a `keep`, which is what the other
    button says, the button that acts is red.
    """

    def decorate(act: Callable[..., HttpResponse]) -> Any:
        @wraps(act)
        def ask(page: ConsolePage, request: HttpRequest, object_id: str) -> HttpResponse:
            row = page.get_object(request, object_id)
            if row is None:
                raise Http404
            is_scripted = "HX-Request" in request.headers
            form = dialog.get("form_class", ReasonForm)(data=request.POST or None, request=request, object_id=object_id)
            if form.is_valid():
                answer = act(page, request, form, object_id=object_id)
                address = answer.headers.get("HX-Redirect")
                if address == page.address(row.pk) and request.GET.get("from") == "dashboard":
                    address = answer.headers["HX-Redirect"] = reverse("ergon:index")
                if address is None or is_scripted:
                    return answer
                # A browser without script follows a redirection instead of the script's header.
                return HttpResponseRedirect(address, headers={"HX-Redirect": address})
            context = {"dialog": dialog, "form": form, "address": page.address(row.pk)}
            if is_scripted:
                return TemplateResponse(request, "console/dialog.html", context)
            return page.page(request, "console/dialog_page.html", dialog["title"], row, **context)

        decorated = action(**terms)(ask)
        decorated.dialog = dialog
        return decorated

    return decorate
