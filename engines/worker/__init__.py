"""The worker process: its pipelines, its heartbeat, and the recording of outcomes."""
