"""Fills the fresh database of an idle deployment."""

import os

from benchmarks.idle import BOUNDARIES

FROM = "Benchmark"


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("pipeline", "create", "inbound", "--task", "idle.inbound")
    call_command("pipeline", "create", "outbound", "--task", "idle.outbound", "--direction", "outbound")
    call_command("zone", "create", FROM)
    for number in range(BOUNDARIES):
        call_command("zone", "create", f"{FROM} {number}")
        call_command("boundary", "create", FROM, f"{FROM} {number}")


if __name__ == "__main__":
    main()
