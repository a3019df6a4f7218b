"""Sources and sinks of transactions."""
