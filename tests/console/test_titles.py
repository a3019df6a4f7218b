"""The menu, the title of the window, the breadcrumb and the model give a page the same name."""

import re
from html import unescape

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from ergon_site.access.models import SavedView
from ergon_site.console import MENU, Console, Entry
from tests.console import scene

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LISTS = [entry for _, entries in MENU for entry in entries if entry.address.endswith("_changelist")]
BREADCRUMB = re.compile(r'tracking-tight">\s*(.*?)\s*</a', re.DOTALL)


@pytest.mark.parametrize("entry", LISTS, ids=lambda entry: entry.title)
def test_a_list_has_one_name(browse: Client, entry: Entry) -> None:
    page = browse.get(reverse(entry.address)).content.decode()
    title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    assert title is not None
    assert " ".join(unescape(title.group(1)).split()) == f"{entry.title} | Ergon"
    assert BREADCRUMB.findall(page)[-1] == entry.title


def test_the_theme_outlives_settings_that_were_overridden(browse: Client) -> None:
    browse.get("/admin/")
    delattr(settings, Console.settings_name)
    assert "| Ergon" in browse.get("/admin/").text


def test_a_section_has_one_name(browse: Client) -> None:
    for title, entries in MENU:
        for entry in entries:
            if entry in LISTS:
                page = browse.get(reverse(entry.address)).content.decode()
                assert BREADCRUMB.findall(page)[0] == title, entry.title


HEADING = re.compile(r"<(?P<tag>th|h3|label|dt)\b[^>]*>(.*?)</(?P=tag)>", re.DOTALL)


def headings(markup: str) -> set[str]:
    """The headings of columns, filters and fields."""
    main = markup.split('id="content"')[1]
    texts = (unescape(re.sub(r"<[^>]+>", " ", text)) for _, text in HEADING.findall(main))
    return {" ".join(text.split()) for text in texts}


def test_headings_are_in_the_words_of_the_console(browse: Client) -> None:
    scene.fill()
    SavedView.objects.create(name="mine", place="engines_pipeline", owner=User.objects.get(), query="")
    for entry in LISTS:
        page = browse.get(reverse(entry.address)).content.decode()
        (name,) = re.findall(r"ergon:(\w+)_changelist", entry.address)
        row = re.search(rf"{reverse(entry.address)}[^/]+/change/", page)
        assert row, f"the list {name} has no row"
        for markup in (page, browse.get(row.group()).content.decode()):
            found = headings(markup)
            theirs = {text for text in found if re.search(r"^By .| at$|(Staff|Superuser) status|^Date ", text)}
            assert not theirs, (name, theirs)
        assert "Apply Filters" not in page


NEW = {
    "access/apiclient": "New API client",
    "auth/user": "New user",
    "engines/pipeline": "New pipeline",
    "engines/schedule": "New schedule",
    "facts/zone": "New zone",
    "providers/gate": "Set quota",
}


@pytest.mark.parametrize(("place", "name"), NEW.items())
def test_the_form_of_a_new_row_has_the_name_of_the_button_that_leads_to_it(
    browse: Client, place: str, name: str
) -> None:
    button = re.search(rf'href="/admin/{place}/add/"[^>]*>\s*(.*?)\s*<', browse.get(f"/admin/{place}/").text)
    assert button is not None
    assert button.group(1) == name
    page = browse.get(f"/admin/{place}/add/").text
    assert f"<title>{name} | Ergon</title>" in " ".join(page.split()).replace("> ", ">").replace(" <", "<")
    assert f'tracking-tight">{name}</span>' in page
    assert "Save and" not in page


@pytest.mark.parametrize(("place", "name"), [("engines", "Engines"), ("access", "Access"), ("auth", "Access")])
def test_the_page_of_a_section_has_its_name_and_makes_no_saved_view(browse: Client, place: str, name: str) -> None:
    page = browse.get(f"/admin/{place}/").text
    assert "administration" not in page
    assert f"<title>{name} | Ergon</title>" in " ".join(page.split()).replace("> ", ">").replace(" <", "<")
    assert "savedview/add/" not in page


def test_the_users_are_filtered_by_role(browse: Client) -> None:
    page = browse.get(reverse("admin:auth_user_changelist")).content.decode()
    filters = re.findall(r"<h3[^>]*>\s*(.*?)\s*</h3>", page)
    assert filters == ["Active", "Role"]
