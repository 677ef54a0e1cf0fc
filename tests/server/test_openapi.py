"""The description of all endpoints: valid, complete, and true."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from scripts.generate_endpoints import shared_session_app
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.app import Offer, ServerApp, create_app
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.patience import PATIENCE
from tests.server.harness import RunningServer
from tests.server.operation.test_metrics import WIRES

validator: Any = import_module("openapi_spec_validator")
jsonschema: Any = import_module("jsonschema")
OPENAPI = "/openapi.json"


async def document(app: ServerApp) -> dict[str, Any]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get(OPENAPI)
    assert answer.status_code == 200
    return answer.json()


def whole(tmp_path: Path) -> ServerApp:
    """A server with everything; its keys are not checked here, because metrics are open."""
    context = ToolContext(cwd=tmp_path, spill_dir=tmp_path)
    tools = ToolRunner(ToolRegistry(), PermissionPolicy(tmp_path), DenyingApprover(), context)
    agent = Agent(tools, lambda _: [], approvals=ClientApprovals(1))
    return create_app(ScriptedBackend(parse_script("text: hi")), offer=Offer(tools, agent))


@pytest.mark.parametrize("kind", ["models", "session"])
async def test_it_is_valid_and_has_every_served_endpoint(tmp_path: Path, kind: str) -> None:
    app = whole(tmp_path) if kind == "models" else shared_session_app()
    described = await document(app)
    validator.validate(described)
    served = {
        (plain(route.path_format or ""), method.lower())
        for route in iter_route_contexts(app.api.routes)
        for method in route.methods or ()
        if not (route.name or "").startswith(("refuse", "call_method"))
    }
    paths = described["paths"]
    found = {(plain(path), method) for path, entry in paths.items() for method in entry}
    assert found == served
    for path, entry in described["paths"].items():
        for method, operation in entry.items():
            assert operation["summary"], path
            assert operation["description"], path
            assert "default" in operation["responses"], path
            answers = operation["responses"]["200"]["content"]
            assert answers, path
            takes_body = method == "post" and "requestBody" in operation
            assert takes_body or method != "post" or path in WITHOUT_BODY, path


def plain(path: str) -> str:
    """A path without the names of its parameters: two APIs may have one path."""
    return re.sub(r"{\w+}", "{}", path)


WITHOUT_BODY = {
    "/slots/{id}",  # only if it names a file
    "/admin/drain",
    "/admin/reload",
    "/v1/responses/{response_id}/cancel",
    "/sessions/{id}",
    "/clear",
}


async def test_fields_are_described_in_one_line(tmp_path: Path) -> None:
    described = await document(whole(tmp_path))
    schemas = described["components"]["schemas"].values()
    parts = [part for schema in schemas for part in (schema, *schema.get("anyOf", ()))]
    fields = [field for part in parts for field in part.get("properties", {}).values()]
    descriptions = [field["description"] for field in fields if "description" in field]
    assert "Answer in server-sent events." in descriptions
    assert not [description for description in descriptions if "\n" in description]


def with_keys(tmp_path: Path) -> tuple[KeyStore, str]:
    keys = KeyStore(tmp_path / "keys.json")
    return keys, keys.add("laptop")


def test_it_names_the_keys_and_needs_one(tmp_path: Path) -> None:
    keys, key = with_keys(tmp_path)
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, ServerSettings(port=0), keys) as server:
        assert httpx.get(server.url + OPENAPI, timeout=PATIENCE).status_code == 401
        headers = {"x-api-key": key}
        described = httpx.get(server.url + OPENAPI, headers=headers, timeout=PATIENCE).json()
    validator.validate(described)
    schemes = described["components"]["securitySchemes"]
    assert {"bearer"} < set(schemes)
    assert {"bearer": []} in described["security"]
    assert described["paths"]["/health"]["get"]["security"] == []
    assert "security" not in described["paths"]["/v1/messages"]["post"]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer[ScriptedBackend]]:
    with RunningServer(ScriptedBackend(parse_script("text: hi"))) as running:
        yield running


@pytest.mark.parametrize("wire", WIRES)
def test_requests_and_errors_are_as_described(
    server: RunningServer[ScriptedBackend], wire: str
) -> None:
    path, body = WIRES[wire]
    described = httpx.get(server.url + OPENAPI, timeout=PATIENCE).json()
    template = path.replace("/default:", "/{model}:")
    operation = described["paths"][template]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    resolved = {**schema, "components": described["components"]}
    jsonschema.validate(body, resolved)
    refused = httpx.post(server.url + path, json={"nothing": 1}, timeout=PATIENCE)
    assert refused.status_code == 400
    errors = operation["responses"]["default"]["content"]["application/json"]["schema"]
    jsonschema.validate(refused.json(), errors)
    assert set(refused.json()) <= set(errors["properties"])
