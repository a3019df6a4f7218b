"""A module that makes its process take its time to end, as one does that still has telemetry to send."""

import atexit
import time

SECONDS = 2.0

atexit.register(time.sleep, SECONDS)
