"""What deploy/ holds for Compose, Kubernetes and Grafana: read as their tools read it, and true of the service."""

import copy
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client import generate_latest

from engine.model.system import LEVEL_VARIABLE
from service.jobs.metrics import Metrics
from service.settings import Settings, variable
from storage.jobs.store import JobStore, RunnerRecord
from tests.deploy.engine import compose_program

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "compose"
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("gpu", "postgres", "s3")
KUBERNETES_VERSION = "1.33"
BIN = Path(sys.executable).parent
#: what overlays ask for
NEEDED = {
    "APSP_DB_PASSWORD": "x", "APSP_S3_URL": "s3://b/p", "APSP_S3_ENDPOINT": "https://s3.example",
    "APSP_S3_KEY": "k", "APSP_S3_SECRET": "x" * 16,
}  # fmt: skip

linux = pytest.mark.skipif(sys.platform != "linux", reason="these tools come for Linux")


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    return subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, check=False, env=env)


@linux
def test_the_dockerfile_is_clean():
    done = run(BIN / "hadolint", ROOT / "deploy" / "Dockerfile")
    assert done.returncode == 0, done.stdout + done.stderr


def composed(*overlays: str, **environment: str) -> dict[str, Any]:
    """The files merged and checked by Compose itself."""
    files = [word for name in ("compose", *overlays) for word in ("-f", COMPOSE / f"{name}.yaml")]
    words = [compose_program(), *files, "config", "--format", "json"]
    done = run(*words, **NEEDED, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["compose", *OVERLAYS])
def test_compose_files_follow_the_schema(name):
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE / f"{name}.yaml")
    assert done.returncode == 0, done.stdout


@linux
def test_compose_merges_every_overlay():
    services = composed()["services"]
    assert set(services) == {"api", "runner"}
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert {mount["target"] for mount in service["volumes"]} == {"/data", "/cache"}
    assert all(port["host_ip"] == "127.0.0.1" for port in services["api"]["ports"]), "open to others by a decision only"
    all_of_it = composed(*OVERLAYS)["services"]
    assert set(all_of_it) == {"api", "runner", "database"}, "no object store is started"
    device = all_of_it["runner"]["deploy"]["resources"]["reservations"]["devices"][0]
    assert device == {"capabilities": ["gpu"], "driver": "nvidia", "count": -1}
    assert all_of_it["runner"]["build"]["target"] == "cuda"
    assert "deploy" not in all_of_it["api"]
    for name in ("api", "runner"):
        environment = all_of_it[name]["environment"]
        assert environment["APSP_DATABASE_URL"].startswith("postgresql://")
        assert environment["APSP_STORE_URL"] == NEEDED["APSP_S3_URL"]
        assert environment["AWS_ENDPOINT_URL"] == NEEDED["APSP_S3_ENDPOINT"]


@linux
def test_compose_asks_for_the_passwords():
    for missing in NEEDED:
        files = [word for name in ("compose", "postgres", "s3") for word in ("-f", COMPOSE / f"{name}.yaml")]
        given = {name: value for name, value in NEEDED.items() if name != missing}
        done = run(compose_program(), *files, "config", **given)
        assert done.returncode != 0
        assert missing in done.stderr


def test_what_is_set_is_a_setting():
    known = {variable(name) for name in Settings.model_fields}
    # of Compose's files and of the image: names of images, published ports, passwords, the level of kernels
    own = {"APSP_IMAGE", "APSP_CUDA_IMAGE", "APSP_BASE_IMAGE", "APSP_PUBLISH", "APSP_PUBLISH_METRICS", "APSP_GPUS",
           "APSP_DB_PASSWORD", "APSP_S3_KEY", "APSP_S3_SECRET", "APSP_S3_URL", "APSP_S3_ENDPOINT",
           LEVEL_VARIABLE}  # fmt: skip
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*") if path.suffix in (".yaml", ".service", "")
             and path.is_file()]  # fmt: skip
    named = set(re.findall(r"\bAPSP_[A-Z0-9_]+", "\n".join(texts)))
    assert named - own <= known, named - own - known
    assert own <= named


def test_images_of_others_are_named_by_tag_and_digest():
    files = [*(ROOT / "deploy" / "compose").glob("*.yaml"), ROOT / "deploy" / "Dockerfile"]
    named = {}
    for path in files:
        text = path.read_text()
        stages = set(re.findall(r"^FROM .* AS (\S+)", text, re.MULTILINE))
        found = set(re.findall(r"(?:BASE_IMAGE=|IMAGE:-|image: |^FROM )([^\s$}]+)", text, re.MULTILINE)) - stages
        named[path.name] = {image for image in found if not image.startswith("apsp:")}
    assert all(
        re.fullmatch(r"[a-z]+:[\w.-]+@sha256:[0-9a-f]{64}", image) for images in named.values() for image in images
    )
    assert named["Dockerfile"] == named["compose.yaml"] != set()
    assert len(named["postgres.yaml"]) == 1


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def rendered(folder: Path) -> list[dict[str, Any]]:
    """What kustomize makes of a folder, as far as ours go: resources, namespace, labels, images, JSON patches."""
    (config,) = documents(folder / "kustomization.yaml")
    keys = {"apiVersion", "kind", "namespace", "labels", "resources", "components", "images", "patches"}
    assert set(config) <= keys
    assert (config["kind"] == "Component") == (config["apiVersion"] == "kustomize.config.k8s.io/v1alpha1")
    found = []
    for name in config.get("resources", []):
        place = (folder / name).resolve()
        assert place.exists(), name
        found += rendered(place) if place.is_dir() else copy.deepcopy(documents(place))
    changed(found, config)
    for name in config.get("components", []):
        (component,) = documents(folder / name / "kustomization.yaml")
        assert component["kind"] == "Component"
        found += [d for part in component.get("resources", []) for d in documents(folder / name / part)]
        changed(found, component)
    for document in found:
        if document["kind"] != "Namespace":
            document["metadata"]["namespace"] = config["namespace"]
    return found


def changed(found: list[dict[str, Any]], config: dict[str, Any]) -> None:
    """Images and patches of a kustomization or a component."""
    images = {image["name"]: f"{image['newName']}:{image['newTag']}" for image in config.get("images", [])}
    for container in containers(found):
        container["image"] = images.get(container["image"].partition(":")[0], container["image"])
    for patch in config.get("patches", []):
        (target,) = (d for d in found if all(d.get(k, d["metadata"].get(k)) == v for k, v in patch["target"].items()))
        for step in yaml.safe_load(patch["patch"]):
            apply(target, step)


def apply(target: Any, step: dict[str, Any]) -> None:
    """One operation of a JSON patch (RFC 6902): add to the end of a list, replace or remove what is there."""
    *path, last = (part.replace("~1", "/") for part in step["path"].removeprefix("/").split("/"))
    for part in path:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if step["op"] == "add" and last == "-":
        target.append(step["value"])
    elif step["op"] == "remove":
        del target[last]
    else:
        assert step["op"] == "replace", step
        key = int(last) if isinstance(target, list) else last
        assert target[key] is not None
        target[key] = step["value"]


def containers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [container for document in found if "template" in document.get("spec", {})
            for container in document["spec"]["template"]["spec"]["containers"]]  # fmt: skip


def by_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in found if document["kind"] == kind]


@pytest.mark.parametrize("overlay", ["shared", "s3", "cpu"])
def test_manifests_follow_the_schemas_of_kubernetes(overlay):
    found = rendered(KUBERNETES / overlay)
    kinds = {document["kind"] for document in found}
    assert {"Namespace", "Deployment", "StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    names = [(document["kind"], document["metadata"]["name"]) for document in found]
    assert len(names) == len(set(names))
    for document in found:  # all are Kubernetes' own: they can be applied to any cluster
        kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("overlay", ["shared", "s3", "cpu"])
def test_kustomize_renders_what_is_tested_here(overlay):
    done = run(shutil.which("kubectl"), "kustomize", KUBERNETES / overlay)
    assert done.returncode == 0, done.stderr
    theirs, ours = list(yaml.safe_load_all(done.stdout)), rendered(KUBERNETES / overlay)
    for document in (*theirs, *ours):
        document["metadata"].get("labels", {}).pop("app.kubernetes.io/part-of", None)

    def key(document: dict[str, Any]) -> tuple[str, str]:
        return document["kind"], document["metadata"]["name"]

    assert sorted(theirs, key=key) == sorted(ours, key=key)


def test_a_planted_error_is_found():
    document = by_kind(rendered(KUBERNETES / "shared"), "Deployment")[0]
    document["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


@pytest.mark.parametrize("overlay", ["shared", "s3", "cpu"])
def test_manifests_agree_with_each_other(overlay):
    found = rendered(KUBERNETES / overlay)
    pods = {d["metadata"]["name"]: d["spec"]["template"] for d in found if "template" in d.get("spec", {})}
    assert set(pods) == {"apsp-api", "apsp-runner"}
    labels = [pod["metadata"]["labels"] for pod in pods.values()]
    selectors = [d["spec"]["selector"] for d in by_kind(found, "Service")]
    selectors += [d["spec"]["selector"]["matchLabels"] for d in by_kind(found, "PodDisruptionBudget")]
    selectors += [d["spec"]["podSelector"]["matchLabels"] for d in by_kind(found, "NetworkPolicy")]
    for selector in selectors:
        assert any(selector.items() <= each.items() for each in labels), selector
    (monitor,) = documents(KUBERNETES / "components" / "monitoring" / "monitor.yaml")
    chosen = [d for d in by_kind(found, "Service")
              if monitor["spec"]["selector"]["matchLabels"].items() <= d["metadata"]["labels"].items()]  # fmt: skip
    assert [port["name"] for port in chosen[0]["spec"]["ports"]] == ["http", monitor["spec"]["endpoints"][0]["port"]]
    assert len(chosen) == 1
    for pod in pods.values():
        spec = pod["spec"]
        claimed = {"cache"} if pod is pods["apsp-runner"] else set()
        there = {volume["name"] for volume in spec["volumes"]} | claimed
        assert there == {mount["name"] for mount in spec["containers"][0]["volumeMounts"]} == {"data", "cache", "tmp"}
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    runner = pods["apsp-runner"]["spec"]["containers"][0]
    environment = {v["name"]: v.get("value") for v in runner["env"]}
    if overlay == "cpu":
        assert "nvidia.com/gpu" not in runner["resources"]["limits"]
        assert "tolerations" not in pods["apsp-runner"]["spec"]
        assert {c["image"] for c in containers(found)} == {"registry.example/apsp:0.1.0-cpu"}
        assert environment["APSP_RUNNERS"] == "cpu,short"
    else:
        assert runner["resources"]["limits"]["nvidia.com/gpu"] == "1", "a pod, a runner, a GPU"
        assert (runner["image"][-5:], environment["APSP_RUNNERS"]) == ("-cuda", "cuda0,short")
    claims = [d["metadata"]["name"] for d in by_kind(found, "PersistentVolumeClaim")]
    assert claims == (["apsp-api-cache"] if overlay == "s3" else ["apsp-api-cache", "apsp-data"])
    for name in ("apsp-api", "apsp-runner"):  # what was compiled survives a pod that is replaced
        volumes = {volume["name"]: volume for volume in pods[name]["spec"]["volumes"]}
        templates = [t["metadata"]["name"] for d in by_kind(found, "StatefulSet") if d["metadata"]["name"] == name
                     for t in d["spec"]["volumeClaimTemplates"]]  # fmt: skip
        assert "cache" in templates or volumes["cache"]["persistentVolumeClaim"]["claimName"] in claims
    urls = [v for c in containers(found) for v in c["env"] if v["name"] == "APSP_STORE_URL"]
    assert len(urls) == (2 if overlay == "s3" else 0)


def expressions() -> list[str]:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "apsp.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def test_every_metric_of_the_dashboard_is_told_by_the_service(tmp_path: Path):
    jobs = JobStore(tmp_path / "apsp.db")
    figures = {
        "memory": {"used": 1, "limit": 2},
        "phases": {"search": (1, 0.5)},
        "bytes": {"disk": {"read": 1, "write": 2}},
    }
    jobs.announce(RunnerRecord("node/cpu", "node/cpu:1", "cpu", "idle", None, time.time(), figures))
    metrics = Metrics(Settings(data_dir=tmp_path, metrics_port=0))
    metrics.start(jobs)
    metrics.observe("GET", "/v1/jobs", 200, 0.1)
    text = generate_latest(metrics.registry).decode()
    jobs.close()
    told = set(re.findall(r"^(?:# TYPE )?([a-z_]+)[ {]", text, re.MULTILINE))
    named = {name for expression in expressions() for name in re.findall(r"\b(?:apsp|process)_[a-z_]+", expression)}
    assert len(named) > 12
    # a histogram that nothing was put into yet has no samples
    found = {name for name in named if name in told or name.removesuffix("_bucket") in told}
    assert found == named, named - found


def test_labels_in_the_dashboard_are_those_of_the_metrics():
    operations = (ROOT / "docs" / "operations.md").read_text()
    labels = {name: {label.strip() for label in row.split(",")} - {""}
              for name, row in re.findall(r"^\| `(apsp_\w+)` \| ([^|]*)\|", operations, re.MULTILINE)}  # fmt: skip
    for expression in expressions():
        name = re.search(r"\b(apsp_[a-z_]+)", expression)
        if name is None:
            continue
        metric = re.sub(r"_(bucket|count|sum)$", "", name[1])
        known = labels[metric] | {"le", "job"}
        used = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        used |= set(re.findall(r"(\w+)=~?\"", expression))
        assert used <= known, (expression, used - known)


def test_the_bill_of_materials_describes_the_environment_that_makes_it():
    told = run(sys.executable, ROOT / "deploy" / "sbom.py")
    assert told.returncode == 0, told.stderr
    bill = json.loads(told.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    refs = [component["bom-ref"] for component in bill["components"]]
    assert len(refs) == len(set(refs))
    assert f"pkg:pypi/numpy@{importlib.metadata.version('numpy')}" in refs
    assert bill["metadata"]["component"]["name"] == "apsp"


def test_the_service_monitor_asks_for_what_there_is():
    assert documents(KUBERNETES / "components" / "monitoring" / "kustomization.yaml")[0]["resources"] == [
        "monitor.yaml"
    ]
    (monitor,) = documents(KUBERNETES / "components" / "monitoring" / "monitor.yaml")
    assert set(monitor["spec"]) == {"selector", "endpoints"}
    (endpoint,) = monitor["spec"]["endpoints"]
    assert re.fullmatch(r"[0-9]+s", endpoint["interval"])
    assert endpoint["path"] == "/metrics"


def test_pods_are_admitted_where_the_namespace_restricts_them():
    """What the level *restricted* of the Pod Security Standards asks for."""
    found = rendered(KUBERNETES / "shared")
    (namespace,) = by_kind(found, "Namespace")
    assert namespace["metadata"]["name"] == "apsp"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in (d["spec"]["template"]["spec"] for d in found if "template" in d.get("spec", {})):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert all(set(v) - {"name"} <= {"emptyDir", "ephemeral", "persistentVolumeClaim"} for v in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_examples_of_ways_in_lead_to_the_service():
    (service,) = (d for d in by_kind(rendered(KUBERNETES / "shared"), "Service") if d["metadata"]["name"] == "apsp")
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    (ingress,) = documents(KUBERNETES / "examples" / "ingress.yaml")
    kubernetes_validate.validate(ingress, KUBERNETES_VERSION, strict=True)
    backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], backend["port"]["name"] in ports) == ("apsp", True)
    (route,) = documents(KUBERNETES / "examples" / "httproute.yaml")
    assert (route["apiVersion"], route["kind"]) == ("gateway.networking.k8s.io/v1", "HTTPRoute")
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert backend == {"name": "apsp", "port": ports["http"]}
    assert ingress["metadata"]["namespace"] == route["metadata"]["namespace"] == "apsp"


def unit() -> dict[str, list[str]]:
    """The directives of the systemd unit."""
    lines = (ROOT / "deploy" / "apsp.service").read_text().splitlines()
    found: dict[str, list[str]] = {}
    for name, value in (line.split("=", 1) for line in lines if re.match(r"[A-Z]\w+=", line)):
        found.setdefault(name, []).append(value)
    return found


def test_the_unit_takes_away_what_the_service_does_not_need():
    found = unit()
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome", "ProtectKernelModules", "ProtectKernelTunables",
                 "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock", "RestrictNamespaces", "RestrictRealtime",
                 "RestrictSUIDSGID", "LockPersonality", "RemoveIPC"):  # fmt: skip
        assert found[name] == ["true"], name
    assert found["ProtectSystem"] == ["strict"]
    assert found["CapabilityBoundingSet"] == [""]
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged"], "runners are nice, so @resources stays"
    assert found["SystemCallErrorNumber"] == ["EPERM"], "a call that is not let through is an error, no death"
    assert "AF_INET" in found["RestrictAddressFamilies"][0].split()
    assert "MemoryDenyWriteExecute" not in found, "kernels are compiled"
    account = (ROOT / "deploy" / "apsp.sysusers").read_text().splitlines()[-1].split()
    assert account[:2] == ["u", found["User"][0]]
