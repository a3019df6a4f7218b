"""The number of transactions to claim ahead: no slot idles, and other workers get their share."""

RESERVE = 0.5  # seconds of work
FIRST = 10


class Prefetch:
    """Learns from what gets done how fast work is, and asks for half a second of it."""

    def __init__(self) -> None:
        self._wanted = float(FIRST)
        self._done = 0
        self._looked_at = 0.0

    def wanted(self, most: int, *, done: int, now: float) -> int:
        """The number to claim now, at most `most`, given the number done so far."""
        if done > self._done:
            measured = (done - self._done) / max(now - self._looked_at, 1e-6) * RESERVE
            # Towards the measured rate, but never by more than tenfold at once: one batch is little evidence.
            self._wanted = min(max(measured, self._wanted / 10), self._wanted * 10)
        if done > self._done or self._looked_at == 0:
            self._done, self._looked_at = done, now
        return max(1, min(most, _round(self._wanted)))


def _round(wanted: float) -> int:
    """To one digit: statements for a few numbers can be kept ready, for every number they cannot."""
    digits = str(int(wanted))
    return int(digits[0].ljust(len(digits), "0"))
