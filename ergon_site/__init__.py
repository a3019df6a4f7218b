"""The composition root: settings, addresses, console, Celery app, telemetry."""

from pathlib import Path

__version__ = "0.2.0"

_PACKAGES = Path(__file__).resolve().parent.parent
# A clone has its data and templates beside the packages. An installed Ergon keeps its data where it is started, and has
# the templates in this package.
_IS_CLONE = (_PACKAGES / "manage.py").exists()
BASE_DIR = _PACKAGES if _IS_CLONE else Path.cwd()
TEMPLATES = _PACKAGES / "templates" if _IS_CLONE else _PACKAGES / "ergon_site" / "templates"
