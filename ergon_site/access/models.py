"""Rows of the shared ground: who may call, with which token, what was done by whom, and what is not done twice."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models.functions import Now

from ergon_site.access.core import saved_views, terms
from ergon_site.access.core.roles import MEANINGS

# How PostgreSQL finds a text by its beginning; and a time, and a number.
BEGINNING = ("varchar_pattern_ops", "timestamptz_ops", "int8_ops")
LONGEST_TARGET = 300
LONGEST_KEY = 200


class ConsoleRights(models.Model):
    """No table: it carries the console's rights, so that they exist before the apps that ask for them."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = tuple((right.value, meaning) for right, meaning in MEANINGS.items())

    def __str__(self) -> str:
        return "console rights"


class Role(Group):
    """A group under the name that the console gives it: roles come with Ergon."""

    class Meta:
        proxy = True
        default_permissions = ()


class ApiClient(models.Model):
    """A machine that calls the API, and what it may do there."""

    name = models.CharField(max_length=100, unique=True, help_text="The name of the calling system.")
    scopes = models.JSONField(default=list, blank=True, help_text="What the client may do.")
    zones = models.JSONField(default=list, blank=True, help_text="Zones it may send from.")
    target_zones = models.JSONField(default=list, blank=True, help_text="Zones it may send to.")
    consumers = models.JSONField(default=list, blank=True, help_text="Consumers whose facts it may read.")
    buckets = models.JSONField(default=list, blank=True, help_text="Buckets whose artifacts it may use.")
    tenants = models.JSONField(default=list, blank=True, help_text="Tenants it may see, as UUIDs.")
    rate = models.FloatField("requests per second", null=True, blank=True, help_text="Empty means the default rate.")
    certificate = models.CharField(
        max_length=terms.LONGEST_CERTIFICATE,
        unique=True,
        null=True,
        blank=True,
        help_text="Subject or fingerprint of its certificate, exactly as the proxy sends it. Empty: tokens only.",
    )
    certificate_expires_at = models.DateTimeField(
        "certificate accepted until", null=True, blank=True, help_text="Empty: as long as the proxy accepts it."
    )
    certificate_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.CharField(max_length=150)
    disabled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API client"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(rate__isnull=True) | models.Q(rate__gt=0),
                name="access_client_rate_positive",
                violation_error_message="Requests per second must be above 0.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class ApiToken(models.Model):
    """A token of a client. A rotation leaves two for a while."""

    client = models.ForeignKey(ApiClient, on_delete=models.CASCADE, related_name="tokens")
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the token; the token itself is not stored.")
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API token"
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.client.name} {self.prefix}…"


class AuditEntry(models.Model):
    """An entry of the audit log. Append-only: the database refuses to change or delete it."""

    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=150, help_text="A person, an API client, or a command and its user.")
    action = models.CharField(max_length=100)
    target = models.CharField(max_length=LONGEST_TARGET)
    reason = models.TextField(blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    class Meta:
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        ordering: ClassVar = ["-at", "-id"]
        indexes: ClassVar = [
            models.Index(fields=["-at", "-id"], name="access_audit_newest"),
            models.Index(fields=["action", "-at", "-id"], name="access_audit_of_action"),
            # By the beginning as well as by the whole.
            models.Index(fields=["actor", "-at", "-id"], name="access_audit_of_actor", opclasses=BEGINNING),
            models.Index(fields=["target", "-at", "-id"], name="access_audit_of_target", opclasses=BEGINNING),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.target}"


class AcknowledgedItem(models.Model):
    """An attention item that somebody knows of, as it was then. Once it is worse the dashboard shows it again."""

    key = models.CharField(max_length=LONGEST_KEY, unique=True)
    cause = models.CharField(max_length=LONGEST_KEY, help_text="Which occurrence of the item it was.")
    severity = models.SmallIntegerField()
    count = models.BigIntegerField(help_text="How much it affected.")
    is_capped = models.BooleanField(help_text="Whether the number is a lower limit.")
    until = models.DateTimeField()
    by = models.CharField(max_length=150)
    reason = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name = "acknowledged item"

    def __str__(self) -> str:
        return f"{self.key} until {self.until:%Y-%m-%d %H:%M}"


class SavedView(models.Model):
    """A filtered list under a name: of one person, or for all to see."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    place = models.CharField("list", max_length=100, help_text="App and model of the list.")
    name = models.CharField(max_length=saved_views.LONGEST_NAME)
    query = models.CharField(max_length=saved_views.LONGEST_QUERY, help_text="The filters, as in the list's address.")
    is_shared = models.BooleanField("shared", db_default=False, default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["name", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "place", "name"], name="access_view_of_owner"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["place"], name="access_view_shared", condition=models.Q(is_shared=True)),
        ]

    def __str__(self) -> str:
        return self.name


class FailedLogins(models.Model):
    """Logins that failed within some minutes, of a person, an address, or a person at an address."""

    key = models.CharField(max_length=64, primary_key=True, help_text="SHA-256 of the account or address.")
    attempts = models.PositiveIntegerField()
    ends_at = models.DateTimeField(db_index=True, help_text="When the failures are forgotten.")

    class Meta:
        verbose_name_plural = "failed logins"

    def __str__(self) -> str:
        return f"{self.key}: {self.attempts}"


class IdempotentRequest(models.Model):
    """A request that a client may send again: in flight, or with the answer that it got."""

    client = models.ForeignKey(ApiClient, on_delete=models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=200)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the request.")
    token = models.CharField(max_length=32, help_text="Only its holder may store the answer.")
    started_at = models.DateTimeField(db_default=Now(), db_index=True)
    status = models.PositiveSmallIntegerField(null=True, help_text="Empty while in flight.")
    answer = models.JSONField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["client", "key"], name="access_idempotent_key"),
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.status or 'in flight'}"
