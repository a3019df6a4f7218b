"""The deployment examples: they can be read, name what there is, and leave every process its time to end."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.test import Client

from ergon_site import environment as parsing
from tests.processes import ROOT, environment, free_port, wait_for

pytestmark = pytest.mark.once

FOLDER = ROOT / "docs" / "how-to" / "deployment"
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
README = (FOLDER / "README.md").read_text()
GRACE, LEASE = 25, 30
DATA, OWNER = "/var/lib/ergon", 10001
VARIABLE = re.compile(r"\b(?:ERGON|DJANGO|CELERY|DATABASE|OTEL)_[A-Z_]+\b")


def documents(name: str) -> list[Any]:
    return [document for document in yaml.safe_load_all((FOLDER / name).read_text()) if document]


def services() -> dict[str, Any]:
    found: dict[str, Any] = documents("compose.yaml")[0]["services"]
    return found


def pods() -> Iterator[tuple[str, Any]]:
    for document in documents("kubernetes.yaml"):
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def unit(path: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text().replace("\\\n", " "))
    return parser


def commands() -> Iterator[list[str]]:
    """Every command line of every example."""
    for line in (FOLDER / "Procfile").read_text().splitlines():
        yield shlex.split(line.partition(":")[2])[1:]
    for service in services().values():
        yield service.get("command", [])
    for _, pod in pods():
        for container in pod["containers"]:
            yield container.get("command", [])
    for path in UNITS:
        yield shlex.split(unit(path)["Service"]["ExecStart"])


def managed() -> list[list[str]]:
    return [parts[parts.index("manage.py") + 1 :] for parts in commands() if "manage.py" in parts]


def test_every_example_runs_the_same_processes() -> None:
    whole = {"web", "consume", "maintain", "forward", "celery"}
    procfile = {line.partition(":")[0] for line in (FOLDER / "Procfile").read_text().splitlines()}
    assert procfile == whole
    assert set(services()) == whole | {"migrate", "postgres", "rabbitmq", "collector"}
    assert {name for name, _ in pods()} == whole | {"migrate", "postgres", "rabbitmq"}
    assert {path.stem.removeprefix("ergon-").rstrip("@") for path in UNITS} == whole | {"migrate"}


def test_every_command_exists_and_takes_its_options() -> None:
    assert {parts[0] for parts in managed()} == {"consume", "maintain", "forward", "migrate"}
    for name, *options in managed():
        app = get_commands()[name]
        command = load_command_class(app, name) if isinstance(app, str) else app
        command.create_parser("manage.py", name).parse_args(options)


def test_every_variable_is_one_that_ergon_reads() -> None:
    documented = set(VARIABLE.findall((ROOT / "docs" / "reference" / "settings.md").read_text()))
    examples = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".md"]
    used = {name for path in examples for name in VARIABLE.findall(path.read_text())}
    assert "DATABASE_URL" in used
    assert used <= documented


def test_every_consumer_is_given_its_grace_and_a_lease_to_end() -> None:
    least = GRACE + LEASE
    assert int(services()["consume"]["stop_grace_period"].removesuffix("s")) >= least
    assert dict(pods())["consume"]["terminationGracePeriodSeconds"] >= least
    (consumer,) = (path for path in UNITS if "consume" in path.name)
    assert int(unit(consumer)["Service"]["TimeoutStopSec"]) >= least


@pytest.mark.django_db
def test_the_probes_are_addresses_that_answer(client: Client) -> None:
    (web,) = dict(pods())["web"]["containers"]
    paths = {web[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    paths |= set(re.findall(r":8000(/\w+)", " ".join(services()["web"]["healthcheck"]["test"])))
    assert paths == {"/livez", "/readyz"}
    assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 200)


def volumes_of(pod: Any) -> dict[str, Any]:
    kinds = {volume["name"]: volume for volume in pod.get("volumes", [])}
    (container,) = pod["containers"]
    return {mount["mountPath"]: kinds[mount["name"]] for mount in container["volumeMounts"]}


def test_artifacts_are_kept_in_a_durable_place_that_every_process_sees() -> None:
    compose = documents("compose.yaml")[0]
    ours = [service for service in compose["services"].values() if service["image"] == "ergon"]
    assert len(ours) == 6
    assert all(f"data:{DATA}" in service.get("volumes", []) for service in ours)
    assert "data" in compose["volumes"]
    (claim,) = (one["metadata"]["name"] for one in documents("kubernetes.yaml") if one["kind"].endswith("VolumeClaim"))
    pods_of_ours = [pod for _, pod in pods() if pod["containers"][0]["image"].startswith("ergon:")]
    assert len(pods_of_ours) == 6
    for pod in pods_of_ours:
        assert volumes_of(pod)[DATA]["persistentVolumeClaim"] == {"claimName": claim}
        assert pod["securityContext"] == {"fsGroup": OWNER}
    assert f"--uid {OWNER} " in (FOLDER / "Dockerfile").read_text()
    for path in UNITS:
        assert unit(path)["Service"]["StateDirectory"] == Path(DATA).name


@pytest.mark.django_db
def test_every_address_as_written_is_an_allowed_host(client: Client, settings: Any) -> None:
    (address,) = re.findall(r"## Compose.*?`http://([\d.]+):8000(/admin/)`", README, re.DOTALL)
    default = re.findall(r":-(.*)}", services()["web"]["environment"]["DJANGO_ALLOWED_HOSTS"])
    example = re.findall(r"^DJANGO_ALLOWED_HOSTS=(.*)$", (FOLDER / "env.example").read_text(), re.MULTILINE)
    (ingress,) = (one for one in documents("kubernetes.yaml") if one["kind"] == "Ingress")
    (config,) = (one for one in documents("kubernetes.yaml") if one["kind"] == "ConfigMap")
    written = [(names, address[0]) for names in (*default, *example)]
    written.append((config["data"]["DJANGO_ALLOWED_HOSTS"], ingress["spec"]["rules"][0]["host"]))
    assert len(written) == 3
    for names, host in written:
        settings.ALLOWED_HOSTS = list(parsing.names(names))
        assert client.get("/admin/login/", headers={"host": host}).status_code == 200, (names, host)


@pytest.mark.django_db(transaction=True)
def test_the_procfile_listens_where_the_page_says() -> None:
    (command,) = re.findall(r"^honcho .*$", README, re.MULTILINE)
    (documented,) = re.findall(r"## Procfile.*?`http://127\.0\.0\.1:(\d+)/admin/`", README, re.DOTALL)
    assert documented == "8000"
    port = str(free_port())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    typed = [port if part == documented else part for part in shlex.split(command)]
    with subprocess.Popen([*typed, "web"], cwd=ROOT, env=environment(PATH=path), stdout=subprocess.DEVNULL) as honcho:
        try:
            wait_for(f"http://127.0.0.1:{port}/readyz")
        finally:
            # At once: a web server whose second worker still starts takes its time to end.
            for one in [*psutil.Process(honcho.pid).children(recursive=True), honcho]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()


def test_no_example_carries_a_secret() -> None:
    for path in (FOLDER / "env.example", FOLDER / "systemd" / "ergon.env.example"):
        for line in path.read_text().splitlines():
            name, _, value = line.partition("=")
            assert not (name.endswith(("PASSWORD", "SECRET_KEY")) and value), line
    assert "kind: Secret" not in (FOLDER / "kubernetes.yaml").read_text()
    web = services()["web"]["environment"]
    assert web["DJANGO_SECRET_KEY"].startswith("${DJANGO_SECRET_KEY:?")
