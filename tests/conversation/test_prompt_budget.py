"""The default prompt stays small: system message, all tools, a usual AGENTS.md and five skills."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.messages import ToolSpec
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.session import Session
from tests.knowledge.conversations import conversing
from tests.knowledge.places import Places, places

__all__ = ["places"]

MAX_TOKENS = 2000
CHARACTERS_PER_TOKEN = 4
"""Of JSON and English, in the tokenizers of common models; Pup's tokens are half as long."""

AGENTS = """# Shop

A web shop in Python 3.12 with FastAPI and PostgreSQL; the front end is in `web/` (TypeScript).

- `shop/` has the server: `api/` routes, `core/` rules without I/O, `db/` models and migrations.
- `make dev` starts everything, `make test` runs all tests, `pytest tests/core -k NAME` some.
- `make lint` runs ruff and pyright. CI refuses warnings. Run it before you commit.
- Every change of a table needs a migration: `alembic revision --autogenerate -m TEXT`.
- Prices are integers in cents. Never use floats for money.
- Errors for users are in `core/errors.py`; don't raise HTTPException below `api/`.
- Tests use the database of `docker compose up -d db`, each in a transaction that is rolled back.
- Commit messages: an imperative subject of at most 72 characters, then the reason.
- Don't touch `web/src/generated`; `make client` writes it.
"""
SKILLS = {
    "release": "Makes a release: version, changelog, tag and notes. Use it to publish a version.",
    "migrate": "Writes and checks a database migration. Use it when a model changes.",
    "pdf-forms": "Fills and reads PDF forms. Use it for files that end in .pdf.",
    "review": "Reviews a change against the rules of this project, with a checklist.",
    "load-test": "Measures the server under load and compares the numbers with the last run.",
}


@asynccontextmanager
async def first_prompt(places: Places) -> AsyncGenerator[Session]:
    """The session before its first turn, of a model that gets all tools."""
    places.write("part/AGENTS.md", AGENTS)
    for name, description in SKILLS.items():
        places.skill(".agents/skills", name, description)
    async with conversing(places, "context: 32768\ntext: yes") as (conversation, _):
        session = conversation.session
        assert AGENTS.strip() in session.system_message
        lines = [f"- {name}: {text}" for name, text in SKILLS.items()]
        assert all(line in session.system_message for line in lines)
        yield session


def as_sent(tool: ToolSpec) -> str:
    """The tool as APIs and most templates have it."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return json.dumps({"type": "function", "function": function})


async def test_the_default_prompt_is_small(places: Places) -> None:
    section = LlamaCppSection(threads=1, context_size=2048, cache_disk_mib=0)
    backend = await LlamaCppBackend.load(builtin_model(), section, name=BUILTIN_NAME)
    try:
        async with first_prompt(places) as prompt:
            exact = await backend.count_session_tokens(prompt)
    finally:
        await backend.aclose()
    assert exact < MAX_TOKENS, f"{exact} tokens with Pup's template and tokenizer"
    lengths = {tool.name: len(as_sent(tool)) for tool in prompt.tools}
    characters = len(prompt.system_message) + sum(lengths.values())
    longest = sorted(lengths, key=lambda name: -lengths[name])[:5]
    assert characters < MAX_TOKENS * CHARACTERS_PER_TOKEN, (
        f"the prompt has {characters:,} characters, {sum(lengths.values()):,} of them for "
        f"{len(lengths)} tools; shorten schemas, such as "
        + ", ".join(f"{name} ({lengths[name]})" for name in longest)
    )
