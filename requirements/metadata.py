"""Gives a distribution the dependencies of `requirements/*.in`, so that each is named once."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Pinned here is the release with long-term support; a project may have the next one.
RANGES = {"django": "django>=5.2.19,<6.1"}
EXTRAS = ("production", "demo", "s3", "sqs", "nats", "rabbitmq")


class Requirements(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = self._named("base")
        metadata["optional-dependencies"] = {extra: self._named(extra) for extra in EXTRAS}

    def _named(self, name: str) -> list[str]:
        """The requirements of one file. A file that it includes is an extra of its own, or what Ergon always needs."""
        lines = (Path(self.root) / "requirements" / f"{name}.in").read_text().splitlines()
        named = [re.sub(r"^-r (\w+)\.in$", r"ergon[\1]", line) for line in lines if line and not line.startswith("#")]
        return [RANGES.get(line.partition("~=")[0], line) for line in named if line != "ergon[base]"]
