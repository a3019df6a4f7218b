"""The deployment's own settings, and one address more."""

from ergon_site.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.facts.urls"
