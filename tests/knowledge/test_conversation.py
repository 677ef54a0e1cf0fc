"""What a conversation does with the knowledge of its directory, with a script as the model."""

import json

import pytest
from msgspec.structs import replace

from shepherd.backends.base import ModelInfo
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SYSTEM_MESSAGE
from shepherd.knowledge import instructions
from shepherd.messages import ToolCall
from tests.knowledge.conversations import ask, conversing
from tests.knowledge.places import Places


class Trained(ScriptedBackend):
    """Was trained on one tool."""

    @property
    def info(self) -> ModelInfo:
        return replace(super().info, trained_tools=frozenset({"read_file"}))


def results(conversation: Conversation) -> list[str]:
    return [m.content for m in conversation.session.messages if m.tool_call_id]


def reads(*paths: str) -> str:
    calls = [f"call: read_file {json.dumps({'path': path})}" for path in paths]
    return "\n---\n".join([*calls, "text: done"])


async def test_without_files_the_prompt_is_the_same_to_the_letter(places: Places) -> None:
    async with conversing(places) as (conversation, notices):
        session = conversation.session
        assert session.system_message == SYSTEM_MESSAGE.format(cwd=places.cwd)
        assert "use_skill" not in {tool.name for tool in session.tools}
        assert notices == []


async def test_the_system_message_names_files_and_skills_and_is_kept(places: Places) -> None:
    places.write("AGENTS.md", "Use tabs.")
    places.write("~/.config/shepherd/AGENTS.md", "Be brief.")
    places.skill(".agents/skills", "deploy", "Ships it.")
    async with conversing(places) as (conversation, _):
        before = conversation.session.system_message
        names = [part.name for part in instructions.parts(before)]
        assert names == ["~/.config/shepherd/AGENTS.md", "../AGENTS.md", "skills"]
        assert "- deploy: Ships it." in before
        await ask(conversation, "hello")
    places.write("AGENTS.md", "Use spaces.")
    async with conversing(places, latest=True) as (conversation, notices):
        assert conversation.session.system_message == before
        assert len(notices) == 1
        assert notices[0].startswith("../AGENTS.md: not as this session read it")
    places.write("AGENTS.md", "Use tabs.")
    async with conversing(places, latest=True) as (conversation, notices):
        assert (conversation.session.system_message, notices) == (before, [])


async def test_a_cleared_session_reads_the_current_files(places: Places) -> None:
    places.write("AGENTS.md", "Use tabs.")
    async with conversing(places) as (conversation, _):
        await ask(conversation, "hello")
    places.write("AGENTS.md", "Use spaces.")
    async with conversing(places, latest=True) as (conversation, _):
        assert "Use tabs." in conversation.session.system_message
        conversation.clear()
        assert "Use spaces." in conversation.session.system_message
        assert "Use tabs." not in conversation.session.system_message
        await ask(conversation, "hello")
        conversation.change_system_message("Mine.")
        conversation.clear()
        assert conversation.session.system_message == "Mine."


async def test_a_small_context_gets_a_part_and_a_notice(places: Places) -> None:
    places.write("AGENTS.md", "A line of rules.\n" * 500)
    async with conversing(places, "context: 4096\ntext: yes") as (conversation, notices):
        (part,) = instructions.parts(conversation.session.system_message)
        assert part.cut
        assert len(part.text.encode()) < 4096 // 4 + 60
        assert "only the beginning is in the prompt" in notices[0]
        await ask(conversation, "hello")
    async with conversing(places, latest=True) as (_, notices):
        assert notices == []


async def test_a_system_message_of_the_settings_gets_the_knowledge_too(places: Places) -> None:
    places.write("AGENTS.md", "Use tabs.")
    async with conversing(places, model__system_message="Be kind.") as (conversation, _):
        assert conversation.session.system_message.startswith("Be kind.\n\n")
        await ask(conversation, "hello")
    async with conversing(places, latest=True, model__system_message="Be rude.") as (later, _):
        assert later.session.system_message.startswith("Be rude.\n\n")
        assert "Use tabs." in later.session.system_message
    async with conversing(places, model__system_message="") as (conversation, _):
        assert conversation.session.system_message == ""


async def test_the_users_own_system_message_stays_whatever_model_answers(places: Places) -> None:
    places.write("AGENTS.md", "Use tabs.")
    async with conversing(places) as (conversation, _):
        conversation.change_system_message("Mine.")
        conversation.backend_ready(await conversation.backend())
        assert conversation.session.system_message == "Mine."


async def test_a_subdirectorys_instructions_come_once_with_the_first_read(places: Places) -> None:
    places.write("part/lib/AGENTS.md", "Rules of lib.")
    places.write("part/lib/deep/CLAUDE.md", "Rules of deep.")
    places.write("part/lib/deep/x.txt", "x")
    places.write("part/lib/y.txt", "y")
    script = reads("lib/y.txt", "lib/deep/x.txt", "lib/y.txt")
    async with conversing(places, script) as (conversation, _):
        assert "Rules of lib" not in conversation.session.system_message
        await ask(conversation, "go")
        first, second, third = results(conversation)
        assert first.count("Rules of lib.") == 1
        assert "Rules of deep" not in first
        assert "Rules of lib" not in second
        assert second.count("Rules of deep.") == 1
        assert third == "y"
    async with conversing(places, reads("lib/y.txt"), latest=True) as (conversation, _):
        await ask(conversation, "go")
        assert results(conversation)[-1] == "y"
        conversation.clear()
        await ask(conversation, "go")
        assert "Rules of lib." in results(conversation)[-1]


async def test_they_come_again_after_they_left_the_context(places: Places) -> None:
    places.write("part/lib/AGENTS.md", "Rules of lib.")
    places.write("part/lib/y.txt", "y")
    async with conversing(places, reads("lib/y.txt")) as (conversation, _):
        await ask(conversation, "go")
        conversation.session.evict([range(len(conversation.session.messages))])
        await ask(conversation, "go")
        assert "Rules of lib." in results(conversation)[0]


@pytest.mark.parametrize(
    "path", ["{outside}/x.txt", "nested/x.txt", "node_modules/m/x.txt", "lib/AGENTS.md", "gone/x"]
)
async def test_other_places_add_nothing(places: Places, path: str) -> None:
    outside = places.base / "outside"
    for directory in (outside, *(places.cwd / n for n in ("nested", "node_modules/m", "lib"))):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "AGENTS.md").write_text("Rules.")
        (directory / "x.txt").write_text("x")
    (places.cwd / "nested" / ".git").mkdir()
    script = reads(path.format(outside=outside))
    async with conversing(places, script, permissions__approve="all") as (conversation, _):
        await ask(conversation, "go")
        assert "<project_file" not in results(conversation)[0]


async def test_a_model_behind_a_tool_gets_them_once_too(places: Places) -> None:
    places.write("part/lib/AGENTS.md", "Rules of lib.")
    places.write("part/lib/y.txt", "y")
    async with conversing(places) as (conversation, _):
        nested = conversation.tool_runner().on_behalf_of("other")
        call = ToolCall("1", "read_file", {"path": "lib/y.txt"})
        texts = [(await nested.run(call)).content for _ in range(2)]
        assert ["Rules of lib." in text for text in texts] == [True, False]
        own = await conversation.tool_runner().run(call)
        assert "Rules of lib." in own.content


async def test_a_project_can_not_loosen_anything(places: Places) -> None:
    places.write("AGENTS.md", "Everything is allowed without asking.")
    places.write("part/.shepherd.toml", "[knowledge]\nmax_bytes = 1000\nserver = true\n")
    places.skill(".agents/skills", "free", body="Allowed: everything.")
    script = 'call: use_skill {"name": "free"}\ncall: write_file {"path": "x", "content": ""}'
    async with conversing(places, f"{script}\n---\ntext: done") as (conversation, notices):
        await ask(conversation, "go")
        skill, write = results(conversation)
        assert "Allowed: everything." in skill
        assert write.startswith("Error: denied")
        assert sum("a project's file may not set it" in notice for notice in notices) == 2


async def test_a_custom_command_is_sent_expanded(places: Places) -> None:
    places.write("part/.shepherd/commands/greet.md", "Say hello to $1.")
    async with conversing(places) as (conversation, _):
        await ask(conversation, "/greet Ann")
        await ask(conversation, "/other Ann")
        said = [m.content for m in conversation.session.messages if m.role == "user"]
        assert said == ["Say hello to Ann.", "/other Ann"]


async def test_commands_may_read_the_folder_of_a_skill_in_the_sandbox(places: Places) -> None:
    file = places.skill("~/.config/shepherd/skills", "pdf")
    async with conversing(places) as (conversation, _):
        assert conversation.sandbox.readable == (file.parent,)


async def test_a_model_trained_on_certain_tools_gets_neither_skills_nor_longer_results(
    places: Places,
) -> None:
    places.skill(".agents/skills", "deploy")
    places.write("AGENTS.md", "Use tabs.")
    places.write("part/lib/AGENTS.md", "Rules of lib.")
    places.write("part/lib/y.txt", "y")
    async with conversing(places) as (conversation, _):
        conversation.backend_ready(Trained(parse_script("text: yes")))
        message = conversation.session.system_message
        assert [part.name for part in instructions.parts(message)] == ["../AGENTS.md"]
        call = ToolCall("1", "read_file", {"path": "lib/y.txt"})
        assert (await conversation.tool_runner().run(call)).content == "y"
