"""The container's file and the chart: held against rules and schemas, and read by a server.

`make verify-chart` runs this. No container runs here. The chart is rendered by Helm, its objects
are held against the schemas of Kubernetes, and a server reads the configuration that it makes.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RELEASE = ROOT / "build" / "release-venv" / "bin"
CONTAINERFILE = ROOT / "packaging" / "container" / "Containerfile"
CHART = ROOT / "packaging" / "helm"
HELM = ROOT / "build" / "go" / "helm"
KUBERNETES = ("1.25", "1.31", "1.36")
EVERYTHING = ("members.enabled=true", "podMonitor.enabled=true", "seeds.storageClassName=fast")

pytestmark = pytest.mark.skipif(
    not HELM.exists() or not (RELEASE / "hadolint").exists(), reason="needs make verify-chart"
)


def rendered(*values: str, version: str = KUBERNETES[-1], file: Path | None = None) -> str:
    words = [word for value in values for word in ("--set", value)]
    if file is not None:
        words += ["--values", str(file)]
    done = subprocess.run(
        [HELM, "template", "there", CHART, "--kube-version", f"{version}.0", "-n", "here", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> dict[tuple[str, str], Any]:
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_file_of_the_container_keeps_the_rules() -> None:
    done = subprocess.run([RELEASE / "hadolint", CONTAINERFILE], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    text = CONTAINERFILE.read_text(encoding="utf-8")
    assert text.index("USER 8800:8800") < text.index("ENTRYPOINT")


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [(), EVERYTHING], ids=["plain", "everything"])
def test_the_objects_of_the_chart_fit_the_schemas(
    values: tuple[str, ...], version: str, tmp_path: Path
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(rendered(*values, version=version), encoding="utf-8")
    done = subprocess.run(
        [RELEASE / "kubernetes-validate", "--strict", "-k", version, file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    unknown = [line for line in done.stdout.splitlines() if "Couldn't find schema" in line]
    assert all("PodMonitor" in line for line in unknown)


def test_parameters_of_a_file_of_values_reach_the_server_as_they_are(tmp_path: Path) -> None:
    """Helm reads numbers as floats, and would write a million with an exponent."""
    file = tmp_path / "values.yaml"
    file.write_text("config: {MaxMessageSize: 1048576, Monitor: HTTP}\n", encoding="utf-8")
    lines = [line.strip() for line in rendered(file=file).splitlines()]
    assert "MaxMessageSize = 1048576" in lines
    assert [line for line in lines if line.startswith("Monitor =")] == ["Monitor = HTTP"]


@pytest.mark.parametrize("role", ["seed", "member"])
def test_a_server_takes_the_configuration_that_the_chart_makes(role: str, tmp_path: Path) -> None:
    found = objects(rendered(*EVERYTHING))
    kind = "StatefulSet" if role == "seed" else "Deployment"
    (container,) = found[kind, f"there-{role}"]["spec"]["template"]["spec"]["containers"]
    known = {"POD_NAME": "there-seed-0", "POD_IP": "192.0.2.7"}
    image = CONTAINERFILE.read_text(encoding="utf-8")
    environment = dict(re.findall(r"(MDSERVER_\w+)=(\S+)", image))
    for each in container["env"]:
        value = each.get("value", "a password of the cluster")
        for name, word in known.items():
            value = value.replace(f"$({name})", word)
        if each["name"].startswith("MDSERVER_"):
            environment[each["name"]] = value
    config = tmp_path / "mdserver.conf"
    config.write_text(found["ConfigMap", "there"]["data"]["mdserver.conf"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mdserver.cli.main", "check-config", "--config", config],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^MonitorHTTP.Listen = \*:4000 ", done.stdout, re.MULTILINE)


def test_nobody_in_the_pods_may_write_or_become_root() -> None:
    found = objects(rendered(*EVERYTHING))
    pods = [
        each["spec"]["template"]["spec"]
        for (kind, _), each in found.items()
        if kind in ("StatefulSet", "Deployment")
    ]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_number_of_seeds_that_has_no_majority_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"seeds\.count is 1, 3 or 5"):
        rendered("seeds.count=2")
