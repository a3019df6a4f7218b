"""The console's templates, in an engine of their own.

The theme has templates with the names of Django's admin, and a project may have an admin of its own: this engine knows
its templates while a page of the console is rendered, and none at any other time.
"""

import re
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import unfold
from django.http.response import HttpResponseBase
from django.template import TemplateDoesNotExist, engines
from django.template.backends.base import BaseEngine
from django.template.backends.django import DjangoTemplates
from django.template.base import Origin
from django.template.loaders.app_directories import Loader
from django.template.response import TemplateResponse

from ergon_site import TEMPLATES

NAME = "ergon"
THEME = Path(unfold.__file__).parent / "templates"
# Letters of the icons' font that nothing hides from screen readers.
ICON = re.compile(r"<span(?=[^>]*material-symbols)(?![^>]*aria-hidden)")
# Lines that load what no page uses: charts are drawn by a smaller library (uPlot), rows are sorted on the server, and
# what is filled in on a list is no form of Django's.
UNUSED: dict[str, tuple[str, ...]] = {
    "unfold/layouts/skeleton.html": ("chart/chart.js", "alpine/alpine.sort.js"),
    "admin/change_list.html": ("admin:jsi18n", "media.js"),
}
# Words of the theme that are not the console's.
WORDS = {
    "filter_title=title %} By {{ filter_title }}": "filter_title=title|capfirst %} {{ filter_title }}",
    '{% trans "Apply Filters" %}': "Apply",
    '{% trans "Clear all filters" %}': "Clear all",
    '{% trans "Save" %}': "{% if add %}Create {{ opts.verbose_name }}{% else %}Save{% endif %}",
    "Please enter your old password, for security’s sake, and then enter your new password twice so we can verify you"
    " typed it in correctly.": "Other sessions of yours end when the password is changed.",
    "Please correct the error below.": "Not saved. Correct the marked field.",
    "Please correct the errors below.": "Not saved. Correct the marked fields.",
    "After you've created a user, you’ll be able to edit more user options.": "Roles are chosen on the next page.",
    "{% if pagination_required %}\n        -\n    {% endif %}": "",
}
OPTIONS = {
    "loaders": [("django.template.loaders.cached.Loader", ["ergon_site.console_templates.ConsoleLoader"])],
    "context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ],
    # Filters for states, in every template.
    "builtins": ["ergon_site.access.console.states"],
    "libraries": {name: f"unfold.templatetags.{name}" for name in ("unfold", "unfold_list")},
}

R = TypeVar("R", bound=HttpResponseBase)
_is_rendering: ContextVar[bool] = ContextVar("a page of the console is rendered", default=False)


class ConsoleEngine(BaseEngine):
    """Not one of Django's: the first of those is what a project's code gets that asks for none by name."""

    def __init__(self, params: dict[str, Any]) -> None:
        options = params.pop("OPTIONS")
        self.engine = DjangoTemplates({**params, "OPTIONS": options})
        super().__init__(params)

    def get_template(self, template_name: str) -> Any:
        if not _is_rendering.get():
            raise TemplateDoesNotExist(template_name, backend=self)
        return self.engine.get_template(template_name)


class ConsoleLoader(Loader):
    """Ergon's templates before the theme's, and these before all others.

    Icons are letters of a font, which nobody wants to hear. Scripts that are not used, 240 kB on every page and 277 kB
    more on lists, are left out.
    """

    def get_dirs(self) -> list[str | Path]:
        return [TEMPLATES, THEME, *super().get_dirs()]

    def get_contents(self, origin: Origin) -> str:
        contents = ICON.sub('<span aria-hidden="true"', super().get_contents(origin))
        contents = contents.replace('id="searchbar-submit"', 'id="searchbar-submit" aria-label="Search"')
        for theirs, ours in WORDS.items():
            contents = contents.replace(theirs, ours)
        unused = UNUSED.get(str(origin.template_name), ())
        return "".join(line for line in contents.splitlines(keepends=True) if not any(one in line for one in unused))


def use() -> None:
    """Put the engine before those of the project; again if tests have changed these."""
    if NAME not in engines.templates:
        own = {"BACKEND": f"{__name__}.ConsoleEngine", "NAME": NAME, "DIRS": [], "APP_DIRS": False, "OPTIONS": OPTIONS}
        engines.templates = {NAME: own, **engines.templates}


def rendered(view: Callable[..., R]) -> Callable[..., R]:
    """The view, with its page rendered at once, while the engine knows the templates."""

    @wraps(view)
    def render(*args: Any, **options: Any) -> R:
        response = view(*args, **options)
        if isinstance(response, TemplateResponse):
            use()
            token = _is_rendering.set(True)
            try:
                response.render()
            finally:
                _is_rendering.reset(token)
        return response

    return render
