"""The SQL of calls, below the models: it knows tables by their names. The gate is passed here, in one statement."""
