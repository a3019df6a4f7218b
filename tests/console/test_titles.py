"""The menu, the title of the window, the breadcrumb and the model give a page the same name."""

import re
from html import unescape

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from ergon_site.console import MENU, Console, Entry

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


def test_the_users_are_filtered_by_role(browse: Client) -> None:
    page = browse.get(reverse("admin:auth_user_changelist")).content.decode()
    assert "By role" in page
    assert "By groups" not in page
