"""The deployment examples: they can be read, name what there is, and leave every process its time to end."""

import builtins
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

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
    ingresses = [one for one in documents("kubernetes.yaml") if one["kind"] == "Ingress"]
    (config,) = (one for one in documents("kubernetes.yaml") if "DJANGO_ALLOWED_HOSTS" in one.get("data", {}))
    written = [(names, address[0]) for names in (*default, *example)]
    written += [(config["data"]["DJANGO_ALLOWED_HOSTS"], ingress["spec"]["rules"][0]["host"]) for ingress in ingresses]
    assert len(written) == 4
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


# What is secret, and which processes may see it.
SECRETS = {
    "DATABASE_URL": {"web", "consume", "maintain", "forward", "celery", "migrate"},
    "CELERY_BROKER_URL": {"web", "consume", "maintain", "celery"},
    "DJANGO_SECRET_KEY": {"web"},
    "POSTGRES_PASSWORD": {"postgres"},
    "RABBITMQ_DEFAULT_PASS": {"rabbitmq"},
}


def seen_in_compose() -> dict[str, set[str]]:
    return {name: set(service.get("environment", {})) for name, service in services().items()}


def seen_in_kubernetes() -> dict[str, set[str]]:
    """By the secrets that the first lines of the file make, and what each of them holds."""
    made = re.findall(r"secret generic ([\w-]+) --from-literal=(\w+)", (FOLDER / "kubernetes.yaml").read_text())
    seen = {}
    for name, pod in pods():
        (container,) = pod["containers"]
        named = {one["secretRef"]["name"] for one in container.get("envFrom", []) if "secretRef" in one}
        named |= {one["valueFrom"]["secretKeyRef"]["name"] for one in container.get("env", []) if "valueFrom" in one}
        assert named <= {secret for secret, _ in made}
        seen[name] = {variable for secret, variable in made if secret in named}
    return seen


def seen_in_systemd() -> dict[str, set[str]]:
    seen = {}
    for path in UNITS:
        files = re.findall(r"^EnvironmentFile=/etc/ergon/(\w+\.env)$", path.read_text(), re.MULTILINE)
        texts = [(FOLDER / "systemd" / f"{file}.example").read_text() for file in files]
        names = {name for text in texts for name in re.findall(r"^(\w+)=", text, re.MULTILINE)}
        seen[path.stem.removeprefix("ergon-").rstrip("@")] = names
    return seen


@pytest.mark.parametrize("seen", [seen_in_compose, seen_in_kubernetes, seen_in_systemd])
def test_every_process_sees_the_secrets_that_it_needs_and_no_other(seen: Callable[[], dict[str, set[str]]]) -> None:
    found = seen()
    assert {"web", "consume", "forward"} <= set(found)
    for secret, allowed in SECRETS.items():
        assert {name for name, variables in found.items() if secret in variables} == allowed & set(found), secret


def test_every_container_rotates_its_log() -> None:
    for name, service in services().items():
        assert {"max-size", "max-file"} <= set(service["logging"]["options"]), name


@dataclass
class Healthcheck:
    """Of a service, as the Compose specification has it; all of these are written down as far as the example goes."""

    test: list[str]
    interval: str | None = None
    timeout: str | None = None
    retries: int | None = None
    start_period: str | None = None


@dataclass
class Build:
    context: str
    dockerfile: str | None = None


@dataclass
class Logging:
    driver: str
    options: dict[str, str]


@dataclass
class Deploy:
    replicas: int


@dataclass
class Dependency:
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


@dataclass
class Service:
    image: str
    build: Build | None = None
    command: list[str] | None = None
    depends_on: dict[str, Dependency] | None = None
    deploy: Deploy | None = None
    environment: dict[str, str] | None = None
    healthcheck: Healthcheck | None = None
    hostname: str | None = None
    init: bool | None = None
    logging: Logging | None = None
    ports: list[str] | None = None
    restart: Literal["no", "always", "on-failure", "unless-stopped"] | None = None
    stop_grace_period: str | None = None
    volumes: list[str] | None = None


@dataclass
class Compose:
    name: str
    services: dict[str, Service]
    volumes: dict[str, Any]


def faults(value: Any, kind: Any, where: str = "") -> Iterator[str]:
    """What Kubernetes or Compose would refuse of a value: a field that it does not know, or a value of another type."""
    match get_origin(kind):
        case typing.Literal:
            yield from () if value in get_args(kind) else (f"{where}: {value!r} is none of {get_args(kind)}",)
        case typing.Union | types.UnionType:
            choices = [list(faults(value, one, where)) for one in get_args(kind) if one is not type(None)]
            yield from min(choices, key=len)
        case builtins.list:
            yield from _wrong(value, list, where)
            for index, one in enumerate(value if isinstance(value, list) else []):
                yield from faults(one, get_args(kind)[0], f"{where}[{index}]")
        case builtins.dict:
            yield from _wrong(value, dict, where)
            for name, one in (value if isinstance(value, dict) else {}).items():
                yield from faults(one, get_args(kind)[1], f"{where}.{name}")
        case _ if dataclasses.is_dataclass(kind):
            yield from _wrong(value, dict, where)
            fields, told = get_type_hints(kind), value if isinstance(value, dict) else {}
            required = {one.name for one in dataclasses.fields(kind) if one.default is dataclasses.MISSING}
            yield from (f"{where}: {name} is missing" for name in required - set(told))
            for name, one in told.items():
                if name not in fields:
                    yield f"{where}: unknown field {name}"
                else:
                    yield from faults(one, fields[name], f"{where}.{name}")
        case _ if kind in {str, bool, int, float}:
            yield from _wrong(value, kind, where)


def _wrong(value: Any, kind: type, where: str) -> Iterator[str]:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        yield f"{where}: {value!r} is not a {kind.__name__}"


def model_of(document: dict[str, Any]) -> Any:
    """The dataclass of an object; the models ask lightkube, a client that is not needed here, for these three alone."""
    core: Any = types.ModuleType("lightkube.core.schema")
    core.DictMixin, core.field, core.dataclass = object, dataclasses.field, dataclasses.dataclass
    sys.modules.setdefault("lightkube.core", types.ModuleType("lightkube.core"))
    sys.modules.setdefault(core.__name__, core)
    group, _, version = document["apiVersion"].rpartition("/")
    group = (group.removesuffix(".k8s.io") or "core").replace(".", "_")
    return getattr(import_module(f"lightkube.models.{group}_{version}"), document["kind"])


def test_kubernetes_would_take_every_object() -> None:
    objects = documents("kubernetes.yaml")
    assert len(objects) > 15
    assert [list(faults(one, model_of(one), one["kind"])) for one in objects] == [[]] * len(objects)


def compose() -> dict[str, Any]:
    """The file without extensions, which Compose ignores."""
    return {name: value for name, value in documents("compose.yaml")[0].items() if not name.startswith("x-")}


def test_compose_would_take_every_service_and_what_each_names_is_there() -> None:
    told = compose()
    assert list(faults(told, Compose, "compose")) == []
    for service in told["services"].values():
        for name, dependency in service.get("depends_on", {}).items():
            needed = told["services"][name]
            assert dependency["condition"] != "service_healthy" or "healthcheck" in needed, name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in told["volumes"] or (FOLDER / source).exists(), volume


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"healtcheck": {}}, "compose.services.web: unknown field healtcheck"),
        ({"restart": "sometimes"}, "compose.services.web.restart: 'sometimes' is none of "),
        ({"init": "yes"}, "compose.services.web.init: 'yes' is not a bool"),
        ({"environment": {"DJANGO_SECURE": 1}}, "compose.services.web.environment.DJANGO_SECURE: 1 is not a str"),
    ],
)
def test_a_service_that_compose_would_refuse_is_found(change: dict[str, Any], fault: str) -> None:
    told = compose()
    told["services"]["web"] |= change
    (found,) = faults(told, Compose, "compose")
    assert found.startswith(fault)


def test_every_example_serves_with_the_options_that_the_page_explains() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    (shown,) = re.findall(r"^granian .*?application$", page, re.MULTILINE | re.DOTALL)
    (image,) = re.findall(r"^CMD (\[.*?\])", (FOLDER / "Dockerfile").read_text(), re.MULTILINE | re.DOTALL)
    lines = [shlex.join(parts) for parts in commands() if "granian" in " ".join(parts)]
    lines += [shlex.join(json.loads(image.replace("\\\n", "")))]
    assert len(lines) == 3  # Kubernetes and Compose run the image's
    options = shown.replace("\\\n", "").split("--no-ws")[1].split()
    assert [line.split("--no-ws")[1].split() for line in lines] == [options] * 3


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"replica": 2}, "Deployment.spec: unknown field replica"),
        ({"replicas": "2"}, "Deployment.spec.replicas: '2' is not a int"),
        ({"selector": None}, "Deployment.spec.selector"),
    ],
)
def test_an_object_that_kubernetes_would_refuse_is_found(change: dict[str, Any], fault: str) -> None:
    (deployment,) = (one for one in documents("kubernetes.yaml") if one["metadata"]["name"] == "consume")
    deployment["spec"] |= change
    assert any(one.startswith(fault) for one in faults(deployment, model_of(deployment), "Deployment"))


def test_no_example_carries_a_secret() -> None:
    for path in FOLDER.rglob("*env.example"):
        for line in path.read_text().splitlines():
            name, _, value = line.partition("=")
            assert not (name.endswith(("PASSWORD", "SECRET_KEY")) and value), line
    assert "kind: Secret" not in (FOLDER / "kubernetes.yaml").read_text()
    web = services()["web"]["environment"]
    assert web["DJANGO_SECRET_KEY"].startswith("${DJANGO_SECRET_KEY:?")
