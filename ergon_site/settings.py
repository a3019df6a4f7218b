"""Ergon's settings, and the only reader of the environment. With nothing set, everything works on one machine."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from csp.constants import NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.core.management.utils import get_random_secret_key

from ergon_site import BASE_DIR, TEMPLATES as PAGES, __version__, databases, environment
from ergon_site.access.brokers import SILENCE_LIMIT, transport_options
from ergon_site.telemetry import logging_to
from facts.core import limits

T = TypeVar("T")


def read(name: str, parse: Callable[[str], T], default: str = "") -> T:
    """The value of a variable; a bad one ends the process with one line that names it."""
    try:
        return parse(os.environ.get(name) or default)
    except ValueError as error:
        refuse(name, str(error))


def refuse(name: str, why: str) -> NoReturn:
    sys.stderr.write(f"ergon: {name} {why}\n")
    sys.exit(os.EX_CONFIG)


def keep_secret_key(folder: Path) -> str:
    """The key kept in the data folder, made on first use; processes that start at once agree on one."""
    path, draft = folder / "secret_key", folder / f"secret_key.{os.getpid()}"
    if not path.exists():
        draft.touch(mode=0o600)
        draft.write_text(get_random_secret_key())
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return path.read_text()


ERGON_DATA_DIR = read("ERGON_DATA_DIR", environment.folder, default=str(BASE_DIR / "var"))

# Ergon
ERGON_ZONE = read("ERGON_ZONE", environment.text, default="local")
ERGON_FACT_LIMITS = read("ERGON_FACT_LIMITS", lambda told: limits.checked(environment.json_object(told)), default="{}")
ERGON_ORPHAN_AGE = read("ERGON_ORPHAN_AGE", environment.seconds, default="86400")
ERGON_VERIFY_AGE = read("ERGON_VERIFY_AGE", environment.duration, default="604800")
ERGON_WAITING_FETCHES = read("ERGON_WAITING_FETCHES", environment.whole, default="2")
ERGON_TASKS = read("ERGON_TASKS", environment.modules)
ERGON_EXECUTORS = read("ERGON_EXECUTORS", environment.executors, default="{}")
# What executors inherit: what programs need to run, and what the operator names besides.
ERGON_EXECUTOR_VARIABLES = read("ERGON_EXECUTOR_VARIABLES", environment.variables)
ERGON_SERVICES = read("ERGON_SERVICES", environment.factories, default="{}")
ERGON_LEASE_SECONDS = read("ERGON_LEASE_SECONDS", environment.seconds, default="30")
# Peers to pull facts from: their addresses, and the folder with one file for each token.
ERGON_PEERS = read("ERGON_PEERS", environment.peers)
ERGON_PEER_TOKENS = read("ERGON_PEER_TOKENS", environment.path, default=str(ERGON_DATA_DIR / "peer-tokens"))
ERGON_HANDOFF_TIMEOUT = read("ERGON_HANDOFF_TIMEOUT", environment.seconds, default="15")
ERGON_DATABASE_TIMEOUT = read("ERGON_DATABASE_TIMEOUT", environment.seconds, default="10")
ERGON_START_TIMEOUT = read("ERGON_START_TIMEOUT", environment.seconds, default="60")
ERGON_PAYLOAD_LIMIT = read("ERGON_PAYLOAD_LIMIT", environment.size, default="1048576")
ERGON_RESULT_LIMIT = read("ERGON_RESULT_LIMIT", environment.size, default="1048576")
ERGON_CONCURRENCY = read("ERGON_CONCURRENCY", environment.optional(environment.whole))
ERGON_BATCH = read("ERGON_BATCH", environment.optional(environment.whole))
ERGON_LIMIT = read("ERGON_LIMIT", environment.optional(environment.whole))
ERGON_TIMEOUT = read("ERGON_TIMEOUT", environment.optional(environment.seconds))
ERGON_DRAIN = read("ERGON_DRAIN", environment.flag, default="0")
ERGON_JSON = read("ERGON_JSON", environment.flag, default="0")
ERGON_PROCESSES = read("ERGON_PROCESSES", environment.whole, default="1")
ERGON_METRICS_PORT = read("ERGON_METRICS_PORT", environment.optional(environment.port))
ERGON_GRACE = read("ERGON_GRACE", environment.duration, default="25")
ERGON_CANCEL_GRACE = read("ERGON_CANCEL_GRACE", environment.seconds, default="1")
ERGON_ABANDONED_GRACE = read("ERGON_ABANDONED_GRACE", environment.seconds, default="30")
ERGON_API_RATE = read("ERGON_API_RATE", environment.rate, default="1000/s")
ERGON_METRICS_RATE = read("ERGON_METRICS_RATE", environment.rate, default="10/s")
ERGON_CERTIFICATE_HEADER = read("ERGON_CERTIFICATE_HEADER", environment.header)
ERGON_TRUSTED_PROXIES = read("ERGON_TRUSTED_PROXIES", environment.networks)
if ERGON_CERTIFICATE_HEADER and not ERGON_TRUSTED_PROXIES:
    refuse("ERGON_TRUSTED_PROXIES", "is required with ERGON_CERTIFICATE_HEADER: anybody can send a header")
ERGON_LOGIN_FAILURES = read("ERGON_LOGIN_FAILURES", environment.whole, default="10")
ERGON_LOGIN_LOCKOUT = read("ERGON_LOGIN_LOCKOUT", environment.seconds, default="900")
ERGON_RELEASE = read("ERGON_RELEASE", environment.release, default=f"Ergon {__version__}")
ERGON_TRACE_URL = read("ERGON_TRACE_URL", environment.trace_url)

# Security
DEBUG = read("DJANGO_DEBUG", environment.flag, default="0")
SECURE = read("DJANGO_SECURE", environment.flag, default="0")
ALLOWED_HOSTS = list(read("DJANGO_ALLOWED_HOSTS", environment.names, default="localhost,127.0.0.1,[::1]"))
if os.environ.get("DJANGO_SECRET_KEY"):
    SECRET_KEY = read("DJANGO_SECRET_KEY", environment.secret_key)
elif SECURE:
    refuse("DJANGO_SECRET_KEY", "is required with DJANGO_SECURE=1")
else:
    SECRET_KEY = keep_secret_key(ERGON_DATA_DIR)

SECURE_SSL_REDIRECT = SECURE
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
# A session ends when nobody has used it for so long.
SESSION_ENGINE = "ergon_site.access.sessions"
SESSION_COOKIE_AGE = read("ERGON_SESSION_IDLE", environment.session_idle, default="3600")
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# The console's theme needs inline styles and evaluated expressions; nothing may come from another host.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF, UNSAFE_INLINE, UNSAFE_EVAL],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# Application
INSTALLED_APPS = [
    "unfold.apps.BasicAppConfig",
    "ergon_site.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "ergon_site.apps.CeleryResults",
    "django_tasks",
    "ergon_site.access",
    "engines",
    "providers",
    "facts",
]
MIDDLEWARE = [
    "ergon_site.access.middleware.watch_requests",
    "ergon_site.probes.answer_probes",
    "ergon_site.access.middleware.observe_api",
    "django.middleware.security.SecurityMiddleware",
    "ergon_site.static_files.StaticFiles",
    "ergon_site.static_files.CompressedAnswers",
    "ergon_site.access.middleware.ContentPolicy",
    "ergon_site.access.middleware.Sessions",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "ergon_site.access.middleware.Authentication",
    "ergon_site.access.middleware.renew_sessions",
    "ergon_site.access.middleware.Messages",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "ergon_site.urls"
WSGI_APPLICATION = "ergon_site.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [PAGES],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
DATABASES: dict[str, dict[str, Any]] = {
    "default": read("DATABASE_URL", lambda url: databases.database(url) if url else databases.in_folder(ERGON_DATA_DIR))
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTHENTICATION_BACKENDS = ["ergon_site.access.rights.Rights"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"min_length": 12}),
        ("CommonPasswordValidator", {}),
    )
]
LOGIN_URL = "ergon:login"
LOGIN_REDIRECT_URL = "ergon:index"
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = "ergon_site.formats"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = True
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "ergon_site.static_files.HashedAddresses"},
    "artifacts": read("ERGON_S3", environment.artifact_storage(ERGON_DATA_DIR / "artifacts")),
}
LOGGING = logging_to(terminal=sys.stderr.isatty())


def exports(signal: str) -> bool:
    """Whether an OTLP endpoint is named for a signal; the SDK reads the rest of OpenTelemetry's own variables."""
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    named = [name for name in names if os.environ.get(name)]
    if not named or read("OTEL_SDK_DISABLED", environment.flag, default="0"):
        return False
    if find_spec("opentelemetry.exporter") is None or find_spec("opentelemetry.exporter.otlp") is None:
        refuse(
            named[0],
            "is set, but the exporter is missing: install ergon[production], or requirements/production.txt of a clone",
        )
    return True


OTLP_TRACES = exports("TRACES")
OTLP_METRICS = exports("METRICS")

# Celery: without a broker, tasks run where they are called.
CELERY_BROKER_URL = read("CELERY_BROKER_URL", environment.broker) if os.environ.get("CELERY_BROKER_URL") else None
CELERY_TASK_ALWAYS_EAGER = CELERY_BROKER_URL is None
CELERY_BROKER_TRANSPORT_OPTIONS = transport_options(CELERY_BROKER_URL or "", SILENCE_LIMIT)
if not (CELERY_BROKER_URL or "").startswith("amqp"):
    # Redis gives a task to another worker after this time.
    CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"] = 1800
CELERY_RESULT_BACKEND = "django-db"
CELERY_TASK_SERIALIZER = CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = CELERY_RESULT_ACCEPT_CONTENT = ["json"]
CELERY_TASK_STORE_EAGER_RESULT = True
CELERY_RESULT_EXTENDED = True
CELERY_TASK_TRACK_STARTED = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CONSUMER = "ergon_site.celery_consumer:Consumer"

# Functions marked as tasks are transactions; a queue is a pipeline.
TASKS = {"default": {"BACKEND": "engines.task_backend.ErgonBackend", "QUEUES": []}}

# API
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "ergon_site.access.api.authentication.TokenAuthentication",
        "ergon_site.access.api.authentication.CertificateAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["ergon_site.access.api.authentication.HasScope"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "ergon_site.access.api.negotiation.QuickNegotiation",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ergon_site.access.api.parsers.LimitedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "ergon_site.access.api.pagination.NewestFirst",
    "DEFAULT_THROTTLE_CLASSES": ["ergon_site.access.api.throttling.ClientRate"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "ergon_site.access.api.problems.handle",
    "UNAUTHENTICATED_USER": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Ergon",
    "DESCRIPTION": "Transactions, facts and providers. Every error is an RFC 9457 problem with a stable `code`.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    # Of policies; events of providers have kinds, too.
    "ENUM_NAME_OVERRIDES": {"KindEnum": ["consumer", "producer"]},
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "ergon_site.access.api.schema.add_problems",
        "ergon_site.api_reference.add_summaries",
    ],
}
