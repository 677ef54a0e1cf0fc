"""Writes docs/reference/endpoints.md from the server's routes and request models."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from fastapi import FastAPI
from pydantic import BaseModel, RootModel
from pydantic.fields import FieldInfo

from shepherd.backends.base import Backend
from shepherd.backends.script import Script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.shared.session import SessionActions, SharedSession
from shepherd.knowledge.knowledge import NO_KNOWLEDGE
from shepherd.messages import JsonObject
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.agent import Agent
from shepherd.server.agent.approvals import ClientApprovals
from shepherd.server.app import Offer, ServerApp, create_app, create_conversation_app
from shepherd.server.openapi import body_models
from shepherd.session import Session
from shepherd.tools.permissions.approval import Approver, DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext

PAGE = "endpoints.md"

_SHARED = ("/", "/approvals/{id}")
"""Paths of a shared session that mean something else on other servers."""


def render() -> str:
    """The page as Markdown."""
    parts = [
        "# Endpoints\n",
        "Generated from `shepherd/server/`; do not edit. See [the server](../server.md).\n",
    ]
    server, session = _served(), shared_session_app().api
    served: JsonObject = server.openapi()["paths"]
    shared = {
        path: methods
        for path, methods in session.openapi()["paths"].items()
        if path not in served or path in _SHARED
    }
    parts.extend(_sections(server, served))
    parts.append("# Endpoints of a shared session\n")
    parts.append("Of `shepherd --cliserver`, beside `/health`. See [there](../cliserver.md).\n")
    parts.extend(_sections(session, shared))
    return "\n".join(parts)


def _sections(api: FastAPI, paths: JsonObject) -> Iterator[str]:
    """The endpoints of these paths; those that mean the same as an earlier one are left out."""
    bodies = {(path, method): model for path, method, model in body_models(api)}
    seen = set[tuple[str, str]]()
    kept: list[tuple[str, str, str]] = []
    for path in sorted(paths, key=_rank):
        for method, operation in paths[path].items():
            if (method, operation["description"]) not in seen:
                seen.add((method, operation["description"]))
                kept.append((path, method, operation["description"]))
    for path, method, description in sorted(kept):
        yield from _section(method.upper(), path, description, bodies.get((path, method)))


def _rank(path: str) -> tuple[bool, bool, int, str]:
    """The usual one of several paths comes first."""
    return not path.startswith("/v1beta/"), not path.startswith("/v1/"), len(path), path


def _served() -> FastAPI:
    tools, keys, approvals = _tools(DenyingApprover()), KeyStore(Path()), ClientApprovals(1)
    agent = Agent(tools, lambda _: [], approvals=approvals)
    return create_app(_backend(), keys=keys, offer=Offer(tools, agent)).api


async def _command(text: str) -> str:
    return text


def _backend() -> Backend:
    return ScriptedBackend(Script(()))


def _tools(approver: Approver) -> ToolRunner:
    here = Path.cwd()
    context = ToolContext(cwd=here, spill_dir=here)
    return ToolRunner(ToolRegistry(), PermissionPolicy(here), approver, context)


def shared_session_app() -> ServerApp:
    """The application of a shared session without messages."""
    empty = SimpleNamespace(session=Session(), knowledge=NO_KNOWLEDGE)  # its routes do not run
    conversation = cast(Conversation, empty)
    shared = SharedSession(conversation, SessionActions(_tools, _command), _backend())
    return create_conversation_app(shared)


def _section(
    method: str, path: str, description: str, model: type[BaseModel] | None
) -> Iterator[str]:
    yield f"## `{method} {path}`\n"
    yield f"{description}\n"
    if model is not None and not issubclass(model, RootModel):
        yield "| field | |"
        yield "|---|---|"
        own_first = sorted(model.model_fields, key=lambda name: name not in model.__annotations__)
        for name in own_first:
            field = model.model_fields[name]
            about = " ".join((field.description or "").split())
            yield f"| `{field.alias or name}`{_required(field)} | {about} |"
        yield ""


def _required(field: FieldInfo) -> str:
    return " (required)" if field.is_required() else ""
