"""Which paths a key opens, and which models."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import openai
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.access.paths import OPEN_PATHS, PathScopes
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.app import Offer, create_app
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.patience import PATIENCE
from tests.server.harness import CHAT, HI, RunningServer, Scripted, ask

ADMIN = frozenset({KeyScope.ADMIN})


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyStore:
    return KeyStore(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def secrets(keys: KeyStore) -> Mapping[KeyScope, str]:
    """A key for each scope alone."""

    def only(scope: KeyScope, key: ApiKey) -> ApiKey:
        return replace(key, scopes=frozenset({scope}))

    return {scope: keys.add(scope, lambda key, scope=scope: only(scope, key)) for scope in KeyScope}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> ToolRunner:
    directory = tmp_path_factory.mktemp("work")
    context = ToolContext(cwd=directory, spill_dir=directory / "spill")
    return ToolRunner(default_registry(), PermissionPolicy(directory), DenyingApprover(), context)


@pytest.fixture(scope="module")
def server(
    keys: KeyStore, secrets: Mapping[KeyScope, str], tools: ToolRunner
) -> Iterator[Scripted]:
    backend = ScriptedBackend(parse_script("text: come in"))
    with RunningServer(backend, ServerSettings(port=0), keys, tools) as running:
        yield running


def status(server: Scripted, key: str, method: str, path: str) -> int:
    body = {"messages": HI, "max_tokens": 5} if method == "POST" else None
    headers = {"Authorization": f"Bearer {key}"}
    url = server.url + path
    return httpx.request(method, url, json=body, headers=headers, timeout=PATIENCE).status_code


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", CHAT, KeyScope.CHAT),
        ("POST", f"{CHAT}/", KeyScope.CHAT),
        ("POST", "/chat/completions", KeyScope.CHAT),
        ("POST", "/v1/messages?beta=true", KeyScope.CHAT),
        ("POST", "/v1/responses", KeyScope.CHAT),
        ("GET", "/v1/responses/resp_1", KeyScope.CHAT),
        ("POST", "/v1beta/models/any:generateContent", KeyScope.CHAT),
        ("POST", "/v1/models/a/b:streamGenerateContent", KeyScope.CHAT),
        ("POST", "/v1/models/any:embedContent", KeyScope.EMBED),
        ("POST", "/v1/models/any:destroy", KeyScope.ADMIN),
        ("POST", "/api/chat", KeyScope.CHAT),
        ("POST", "/v1/embeddings", KeyScope.EMBED),
        ("POST", "/api/embed", KeyScope.EMBED),
        ("GET", "/v1/tools", KeyScope.TOOLS),
        ("POST", "/v1/tools/execute", KeyScope.TOOLS),
        ("POST", "/tools", KeyScope.TOOLS),
        ("POST", "/v1//tools/execute", KeyScope.ADMIN),
        ("GET", "/v1/tools%0A", KeyScope.ADMIN),
        ("GET", "/V1/tools", KeyScope.ADMIN),
        ("GET", "/v1/toolset", KeyScope.ADMIN),
        ("POST", "/approvals/1", KeyScope.APPROVE),
        ("GET", "/approvals", KeyScope.APPROVE),
        ("GET", "/approvals/updates/", KeyScope.APPROVE),
        ("GET", "/approvals%2fupdates", KeyScope.APPROVE),
        ("POST", "/models/load", KeyScope.ADMIN),
        ("DELETE", "/api/delete", KeyScope.ADMIN),
        ("POST", "/metrics", KeyScope.ADMIN),
        ("PATCH", "/v1/nothing", KeyScope.ADMIN),
    ],
)
def test_only_the_scope_of_the_path_opens_it(
    server: Scripted, secrets: Mapping[KeyScope, str], method: str, path: str, scope: KeyScope
) -> None:
    opened = {name for name, key in secrets.items() if status(server, key, method, path) != 403}
    assert opened == {scope}


@pytest.mark.parametrize("path", ["/", "/v1/models", "/v1/models/any", "/api/tags", "/stats"])
def test_every_key_reads_the_lists(
    server: Scripted, secrets: Mapping[KeyScope, str], path: str
) -> None:
    assert {status(server, key, "GET", path) for key in secrets.values()} <= {200, 404}


def test_the_scope_is_named(server: Scripted, secrets: Mapping[KeyScope, str]) -> None:
    with server.client(secrets[KeyScope.EMBED]) as client:
        with pytest.raises(openai.PermissionDeniedError, match="chat") as caught:
            ask(client)
        assert caught.value.code == "insufficient_scope"


@given(st.text(st.sampled_from("/v1abcmodels:tl{}.\n%")), st.sampled_from(["GET", "POST", "X"]))
def test_unknown_paths_need_admin(path: str, method: str) -> None:
    known = ("v1", "api", "chat", "models")
    if path.strip("/").split("/")[0] not in known:
        assert PathScopes().of(method, f"/zzz{path}") == ADMIN


@pytest.mark.parametrize(
    ("template", "method", "path", "scopes"),
    [
        ("/hello/{name}", "GET", "/hello/you", {KeyScope.TOOLS}),
        ("/hello", "POST", "/hello", {KeyScope.TOOLS}),
        ("/{anything}", "GET", "/metrics", {KeyScope.ADMIN}),
        ("/v1/{anything}", "POST", "/v1/secret", {KeyScope.ADMIN}),
        ("/v1/chat/{anything}", "POST", "/v1/chat/x", {KeyScope.CHAT}),
        ("/v1/models/{anything}", "POST", "/v1/models/x", {KeyScope.ADMIN}),
        ("/approvals/x", "POST", "/approvals/x", {KeyScope.APPROVE}),
    ],
)
def test_routes_of_plugins_need_tools_unless_they_cover_others(
    template: str, method: str, path: str, scopes: set[KeyScope]
) -> None:
    assert PathScopes([template]).of(method, path) == scopes


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    for route in iter_route_contexts(app.routes):
        yield from ((method, route.path or "") for method in route.methods or ())


UNSERVED = ("/api/push", "/api/create", "/api/copy", "/api/delete", "/api/blobs")


def test_the_log_names_the_key_of_a_tool_but_no_arguments(
    server: Scripted, secrets: Mapping[KeyScope, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    url = f"{server.url}/v1/tools/execute"
    headers = {"Authorization": f"Bearer {secrets[KeyScope.TOOLS]}"}
    for name in ("get_time", "no\nsuch"):
        body = {"name": name, "arguments": {"secret": "hunter2"}}
        assert httpx.post(url, json=body, headers=headers, timeout=PATIENCE).status_code == 200
    text = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("shepherd"))
    assert "Tool get_time, key tools: " in text
    assert "Tool (unknown), key tools: refused or failed" in text
    assert "hunter2" not in text


def test_every_route_of_the_server_has_an_entry(tools: ToolRunner) -> None:
    agent = Agent(tools, lambda _: [], approvals=ClientApprovals(1))
    keys = KeyStore(tools.context.cwd / "none.json")
    backend = ScriptedBackend(parse_script("text: hi"))
    app = create_app(backend, keys=keys, offer=Offer(tools, agent)).api
    served = {(m, p) for m, p in routes(app) if p not in OPEN_PATHS and not p.startswith(UNSERVED)}
    assert len(served) > 50
    admin = {path for method, path in served if ADMIN & PathScopes().of(method, path)}
    names = ("status", "log", "drain", "reload", "shutdown", "keys", "keys/{name}")
    steering = {f"/admin/{name}" for name in (*names, "keys/{name}/rotate")}
    loading = {f"{prefix}/models/{name}" for prefix in ("", "/v1") for name in ("load", "unload")}
    refused = {f"{prefix}/models/{{model:path}}:{{method}}" for prefix in ("/v1", "/v1beta")}
    assert admin == {"/metrics", "/queue", "/api/pull", *steering, *loading, *refused}


def model_key(store: KeyStore, name: str, *models: str) -> str:
    return store.add(name, lambda key: replace(key, models=models))


def test_a_key_uses_only_its_models_under_any_name(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.json")
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, ServerSettings(port=0), store) as server:
        model = backend.info.id
        for number, patterns in enumerate([(model,), ("x", model[:3] + "*"), ("*",)]):
            with server.client(model_key(store, f"yes{number}", *patterns)) as client:
                assert ask(client).choices[0].message.content == "hi"
        for number, patterns in enumerate([("x",), ("gpt-4",), (model.upper(),), (f"{model}?",)]):
            with server.client(model_key(store, f"no{number}", *patterns)) as client:
                for name in ("gpt-4", "x", model):
                    with pytest.raises(openai.PermissionDeniedError) as caught:
                        ask(client, model=name)
                    assert caught.value.code == "model_not_allowed"


def test_an_expired_key_and_one_without_scopes(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.json")
    backend = ScriptedBackend(parse_script("text: hi"))
    with RunningServer(backend, ServerSettings(port=0), store) as server:
        entry = store.add("past", lambda key: replace(key, expires=key.created))
        assert status(server, entry, "POST", CHAT) == 401
        assert status(server, entry, "GET", "/v1/models") == 401
        nothing = store.add("nothing", lambda key: replace(key, scopes=frozenset()))
        assert status(server, nothing, "POST", CHAT) == 403
        assert status(server, nothing, "GET", "/v1/models") == 200
