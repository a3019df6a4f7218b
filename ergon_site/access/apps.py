from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "ergon_site.access"
    label = "access"
    verbose_name = "Access"
