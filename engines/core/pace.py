"""How many transactions to hold in reserve: enough that no slot idles, few enough that other workers get theirs."""

RESERVE = 0.5  # seconds of work
FIRST = 10


class Pace:
    """Learns from each batch how fast work is done, and asks for half a second of it."""

    def __init__(self) -> None:
        self._wanted = float(FIRST)
        self._taken = 0
        self._taken_at = 0.0

    def wanted(self, most: int, now: float) -> int:
        """How many to take now, at most `most`."""
        if self._taken:
            elapsed = max(now - self._taken_at, 1e-6)
            # Towards the measured rate, but never by more than tenfold at once: one batch is little evidence.
            measured = self._taken / elapsed * RESERVE
            self._wanted = min(max(measured, self._wanted / 10), self._wanted * 10)
        return max(1, min(most, int(self._wanted)))

    def took(self, count: int, now: float) -> None:
        self._taken, self._taken_at = count, now
