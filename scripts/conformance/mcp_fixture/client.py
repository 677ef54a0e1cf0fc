"""Shepherd's client as the suite of MCP starts it: with the address of a server.

It does what a user would: log in where the server asks for it, and have the model call each tool.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from shepherd.config.secrets import Secrets
from shepherd.errors import ConfigError
from shepherd.mcp.login import Login
from shepherd.mcp.secrets import ServerSecrets
from shepherd.mcp.servers import Server, ServerState
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from tests.mcp.harness import Office, open_office, paths_below, server

NAME = "suite"
METADATA = "https://conformance-test.local/client-metadata.json"
"""The client-id metadata document that the suite serves."""
LOGINS = 3
"""The most logins of a user: one, a wider one, and one at another authority."""


class User:
    """Says yes, and fills forms with their defaults, else with something."""

    async def ask(self, request: ApprovalRequest) -> Approval:
        choices = request.choices or ((),) * len(request.fields)
        pairs = zip(request.fields, choices, strict=True)
        values = ["" if "empty = " in label else (*words, "x")[0] for label, words in pairs]
        return Approval(Choice.ONCE, values=tuple(values))


async def log_in(definition: Server, secrets: ServerSecrets) -> None:
    """Log in with a browser that follows every redirect; raises ConfigError."""
    visits: list[asyncio.Task[None]] = []

    async def browse(address: str) -> None:
        async with httpx.AsyncClient(follow_redirects=True) as browser:
            await browser.get(address)

    await Login(definition, secrets).run(
        lambda address: visits.append(asyncio.create_task(browse(address)))
    )
    await asyncio.gather(*visits)


async def use(office: Office, calls: list[dict[str, Any]]) -> list[str]:
    """The results of calls: those that the suite wants, else one of each tool."""
    office.hub.update(office.runner.registry)
    offered = [tool.name for tool in office.runner.registry]
    wanted = [(f"{NAME}__{call['name']}", call["arguments"]) for call in calls]
    results = [
        await office.call(name, **arguments)
        for name, arguments in wanted or [(name, arguments_of(office, name)) for name in offered]
    ]
    return [result.content for result in results]


def arguments_of(office: Office, name: str) -> dict[str, Any]:
    """Something for each argument that a tool needs."""
    tool = office.runner.registry.get(name)
    assert tool is not None
    schema = tool.spec().parameters
    kinds = {key: schema["properties"][key].get("type") for key in schema.get("required", ())}
    return {key: 2 if kind in ("number", "integer") else "x" for key, kind in kinds.items()}


async def main(url: str) -> int:
    """Use the server; the exit code tells whether that went well."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    values: dict[str, Any] = {"url": url}
    environment: dict[str, str] = {}
    if "/" in os.environ["MCP_CONFORMANCE_SCENARIO"]:
        values["client_id"] = context.get("client_id", METADATA)
    if "client_secret" in context:
        environment["SECRET"] = context["client_secret"]
        values["client_secret"] = "${SECRET}"
    with tempfile.TemporaryDirectory() as folder:
        base, definition = Path(folder), server(NAME, **values)
        secrets = ServerSecrets(
            Secrets(paths_below(base).credentials_file, environment), environment
        )
        for _ in range(LOGINS):
            async with open_office(base, [definition], env=environment, approver=User()) as office:
                entry = office.entry(NAME)
                results = []
                if entry.state is ServerState.READY:
                    results = await use(office, context.get("toolCalls", []))
                problem = "; ".join([entry.problem, *results, *office.notices])
            print(entry.state, problem)
            if "mcp login" not in problem:
                return int(entry.state is ServerState.FAILED)
            try:
                await log_in(definition, secrets)
            except ConfigError as error:
                print(error)
                return 1
    return 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[-1])))
