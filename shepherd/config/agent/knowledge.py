"""The settings for the files that the user and the project keep for agents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shepherd.config.section import Section


class KnowledgeSection(Section):
    """Files for agents: AGENTS.md, skills and custom commands."""

    enabled: Annotated[
        bool,
        Field(
            description="Read `AGENTS.md` (else `CLAUDE.md` or `GEMINI.md`), skills and custom "
            "commands of the user and of the project."
        ),
    ] = True
    max_bytes: Annotated[
        int,
        Field(
            ge=0,
            le=1_048_576,
            description="Maximum of all files of instructions together, also a byte for every "
            "four tokens of the context; the rest is cut. 0 = read none.",
        ),
    ] = 32_768
    skills: Annotated[
        bool, Field(description="Offer the model skills, with the tool `use_skill`.")
    ] = True
    server: Annotated[
        bool,
        Field(
            description="Read them also for a server with `--use-tools` or `--server-tools`; all "
            "its clients then get the files of its working directory."
        ),
    ] = False
