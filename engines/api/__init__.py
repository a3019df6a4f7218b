"""The engines over HTTP: transactions, pipelines, dead letters, policies."""
