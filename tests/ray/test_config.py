"""The files of config/ray, checked by Ray's own models and by the fields of KubeRay's types."""

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from shepherd.cli.deploy.arguments import read_arguments

CONFIG = Path(__file__).parents[2] / "config" / "ray"
SPEC = {"serveConfigV2", "rayClusterConfig"}
CLUSTER = {"rayVersion", "enableInTreeAutoscaling", "headGroupSpec", "workerGroupSpecs"}
HEAD = {"rayStartParams", "template"}
WORKERS = HEAD | {"groupName", "replicas", "minReplicas", "maxReplicas"}


def check_serve_config(text: str) -> None:
    config = yaml.safe_load(text)
    with warnings.catch_warnings(action="ignore"):
        schema: Any = import_module("ray.serve.schema")
    checked = schema.ServeDeploySchema.model_validate(config)
    [application] = checked.applications
    assert read_arguments(application.args).replica_range.maximum == 4


def test_the_serve_config_is_valid() -> None:
    check_serve_config((CONFIG / "serve.yaml").read_text())


def test_the_ray_service_has_the_fields_of_kuberay() -> None:
    manifest = yaml.safe_load((CONFIG / "rayservice.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayService")
    assert set(manifest["spec"]) == SPEC
    check_serve_config(manifest["spec"]["serveConfigV2"])
    cluster = manifest["spec"]["rayClusterConfig"]
    assert set(cluster) == CLUSTER
    assert set(cluster["headGroupSpec"]) == HEAD
    [workers] = cluster["workerGroupSpecs"]
    assert set(workers) == WORKERS
    params = [cluster["headGroupSpec"]["rayStartParams"], workers["rayStartParams"]]
    assert all(isinstance(value, str) for each in params for value in each.values())


def test_the_head_lists_no_ports_or_all() -> None:
    """KubeRay's service has the head's ports alone if it lists any; workers need Ray's own."""
    manifest = yaml.safe_load((CONFIG / "rayservice.yaml").read_text())
    [head] = manifest["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"]
    names = {port["name"] for port in head.get("ports", [])}
    assert not names or names >= {"gcs", "dashboard", "client", "serve"}
