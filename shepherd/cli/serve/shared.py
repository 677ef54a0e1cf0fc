"""Starts the server of one conversation that many clients share."""

import hashlib
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.cli.launch import CONVERSATION
from shepherd.cli.request import SessionStart
from shepherd.cli.serve.http import server_settings
from shepherd.config.files import write_private
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.conversation import Assembly, assemble
from shepherd.conversation.shared.session import SharedConversation
from shepherd.errors import SessionError
from shepherd.server.app import create_conversation_app
from shepherd.server.keys import KeyStore
from shepherd.server.run import Service, serve_service
from shepherd.transcript import SessionStore

ANYBODY_MAY_APPROVE = (
    "Anybody who reaches this address may talk to the agent and approve what its tools do: no key "
    "is asked for; use --auth-mode json"
)


async def serve_conversation(
    config: Config, cwd: Path, start: SessionStart, providers: ProviderBook, *, insecure: bool
) -> int:
    """Serve the conversation until a signal ends it.

    Goes on with the one served last in `cwd` if `start` names none. Raises ConfigError,
    SessionError, and what keeps the backend from loading.
    """
    paths = Paths.from_env(os.environ)
    if not (start.id or start.latest):
        start = SessionStart(id=served_before(paths, cwd))

    async def open_backend(config: Config) -> Backend:
        from shepherd.backends import registry

        return await registry.open_backend(config, parallel=CONVERSATION, providers=providers)

    assembly = assemble(config, os.environ, cwd, start, open_backend, providers)
    assembly.notices.listen(_note)
    settings = server_settings(config, insecure=insecure)
    keys = KeyStore(paths.keys_file) if config.server.auth_mode == "json" else None

    @asynccontextmanager
    async def open_service() -> AsyncGenerator[Service]:
        backend = await assembly.backend()
        _remember(paths, cwd, assembly)
        conversation = SharedConversation(
            assembly.session, backend, assembly.tool_runner, assembly.limits
        )
        conversation.reload = assembly.reload
        async with conversation:
            app = create_conversation_app(conversation, settings, keys)
            name = f"session {assembly.session.id} with {backend.info.id}"
            yield Service(app, name, path="", drain=conversation.drain)

    try:
        await serve_service(open_service, settings, keys, ANYBODY_MAY_APPROVE)
    finally:
        await assembly.aclose()
    return 0


def served_before(paths: Paths, cwd: Path) -> str:
    """The id of the session that was served last in `cwd`, "" if there is none any more."""
    try:
        saved = _pointer(paths, cwd).read_text(encoding="utf-8").strip()
        return SessionStore(paths.sessions).find(saved).stem if saved else ""
    except (FileNotFoundError, SessionError):  # never served, never spoken in, or deleted
        return ""


def _remember(paths: Paths, cwd: Path, assembly: Assembly) -> None:
    if assembly.transcript is not None:
        write_private(_pointer(paths, cwd), f"{assembly.session.id}\n")


def _pointer(paths: Paths, cwd: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(cwd)).hexdigest()[:32]
    return paths.served / digest


def _note(text: str) -> None:
    sys.stderr.write(f"shepherd: {text}\n")
