import os

import environ

SECRET_KEY = "benchmark"  # noqa: S105 (it keeps no secret)
USE_TZ = True
INSTALLED_APPS = ["django_tasks", "django_tasks_db"]
AGE = None if os.environ["BENCHMARK_CONNECTIONS"] == "kept" else 0
DATABASES = {"default": environ.Env.db_url_config(os.environ["BENCHMARK_DATABASE"]) | {"CONN_MAX_AGE": AGE}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
