"""Path parameters: ids of transactions, which may contain any character, and names."""

from django.urls import register_converter
from django.urls.converters import StringConverter
from drf_spectacular.utils import OpenApiParameter

ID = OpenApiParameter(
    "uid",
    str,
    OpenApiParameter.PATH,
    description="The transaction's id, percent-encoded: `a/b c` is `a%2Fb%20c`.",
)


class IdConverter(StringConverter):
    """An id as one part of an address or, if it holds slashes, as several."""

    regex = r"[^\x00]{1,200}"


class NameConverter(StringConverter):
    """Names of pipelines and policies in addresses."""

    regex = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"


def register() -> None:
    register_converter(IdConverter, "id")
    register_converter(NameConverter, "name")
