"""The deployment's own settings, with a database connection for each request instead of one that is kept."""

from ergon_site.settings import *  # noqa: F403

DATABASES["default"]["CONN_MAX_AGE"] = 0  # noqa: F405
