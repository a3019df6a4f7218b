"""The rules of saved views: their names, what they keep of a list's address, and how many there may be."""

from urllib.parse import parse_qsl, urlencode

LONGEST_NAME = 60
LONGEST_QUERY = 2000
MOST_OF_A_PERSON = 50
MOST_SHARED = 100
# Of an address, what is of one look alone: the place in the list, and what a redirect left behind.
PASSING = frozenset({"at", "e", "p", "_popup", "_to_field"})


def check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        msg = f"a name has 1 to {LONGEST_NAME} printable characters, and no blanks around it"
        raise ValueError(msg)


def check_query(query: str) -> None:
    if not query:
        msg = "a view needs a filter or a search"
        raise ValueError(msg)
    if len(query) > LONGEST_QUERY:
        msg = f"the filters are longer than {LONGEST_QUERY:,} characters"
        raise ValueError(msg)


def kept(query: str) -> str:
    """What a view keeps of a query string: filters and search, in one order, so that equal lists look equal."""
    try:
        pairs = parse_qsl(query, max_num_fields=100)
    except ValueError:
        return ""
    return urlencode(sorted((name, value) for name, value in pairs if name not in PASSING))
