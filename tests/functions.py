"""Functions of django-tasks for tests that run a real consumer."""

from django_tasks import task


@task
def total(*numbers: int) -> int:
    return sum(numbers)
