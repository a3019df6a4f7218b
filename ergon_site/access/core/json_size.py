"""Estimates the memory that a JSON text needs before it is parsed.

Three bytes make an empty list, which takes seventy in memory: the length of a text says little. What a text costs
beyond its length are its lists and objects, up to 240 bytes each, its values, up to 90, and its names, up to 120.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

# Possessive: a text with a quotation mark too few is not looked at over and over.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The most lists and objects that a text may have, the most values in them, and the most names of fields."""

    containers: int
    values: int
    names: int

    def excess(self, body: bytes | bytearray) -> str:
        """The kind of parts that a text has too many of, or nothing. Characters within strings do not count.

        Told and not raised: an error would keep the text alive.
        """
        # Exactly only in the second place, since it takes longer: most texts have few even with those in strings.
        return self._excess(_counts(body)) and self._excess(self._exactly(body))

    def _excess(self, counts: "Counts") -> str:
        if counts.containers > self.containers:
            return f"{self.containers:,} lists and objects"
        if counts.values > self.values:
            return f"{self.values:,} values"
        return f"{self.names:,} names of fields" if counts.names > self.names else ""

    def _exactly(self, body: bytes | bytearray) -> "Counts":
        containers, values, names = counts = _counts(body)
        strings = (body.count(b'"') - body.count(b'\\"')) // 2
        if strings > self.values + self.names + self.containers + 1:
            return counts  # each string is a value or a name: there are too many of them in any case
        for string in _STRING.finditer(body):
            inside = _counts(string[0])
            containers -= inside.containers
            values -= inside.values
            names -= inside.names
        return Counts(containers, values, names)


class Counts(NamedTuple):
    """Lists and objects; values, of which each but the first of its list follows a comma; names of fields."""

    containers: int
    values: int
    names: int


def _counts(text: bytes | bytearray) -> Counts:
    return Counts(text.count(b"[") + text.count(b"{"), text.count(b","), text.count(b":"))
