"""Instructions, skills and commands in each frontend, as programs or over HTTP."""

import httpx
import pytest

import shepherd
from tests.cli.cliserver import cliserver
from tests.cli.program import Program
from tests.cli.test_use_tools import serving
from tests.knowledge.places import Places
from tests.patience import PATIENCE

RULES = "Use tabs."


def fill(program: Program) -> None:
    (program.work / "AGENTS.md").write_text(RULES)
    commands = program.work / ".shepherd" / "commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Say hello to $1.")
    skill = program.work / ".agents" / "skills" / "deploy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: deploy\ndescription: Ships it.\n---\nShip.")


def transcript(program: Program) -> str:
    (path,) = program.sessions
    return path.read_text()


def test_one_question_and_json_lines(program: Program) -> None:
    fill(program)
    done = program.run_scripted(
        'call: use_skill {"name": "deploy"}\n---\ntext: yes', "-e", "/greet Ann"
    )
    assert (done.returncode, done.stdout) == (0, "yes\n")
    saved = transcript(program)
    assert RULES in saved
    assert "Say hello to Ann." in saved
    assert "Ship." in saved
    done = program.run_scripted("text: yes", "--json", "-c", stdin="/greet Bob\n/init\n")
    assert '"reason": "stop"' in done.stdout
    assert "AGENTS.md exists; /init improve" in done.stdout
    assert "Say hello to Bob." in transcript(program)


def test_init_writes_the_file_with_the_models_call_and_its_approval(program: Program) -> None:
    script = 'call: write_file {"path": "AGENTS.md", "content": "# Rules"}\n---\ntext: done'
    denied = program.run_scripted(script, "-e", "/init")
    assert "denied" in denied.stderr
    assert not (program.work / "AGENTS.md").exists()
    program.run_scripted(script, "--approve", "edits", "-e", "/init")
    assert (program.work / "AGENTS.md").read_text() == "# Rules"
    again = program.run_scripted(script, "--approve", "edits", "-e", "/init")
    assert again.returncode == 1
    assert "/init improve" in again.stderr


@pytest.mark.parametrize("allowed", [False, True])
def test_a_server_reads_nothing_of_its_directory_unless_it_may(
    program: Program, *, allowed: bool
) -> None:
    fill(program)
    script = 'call: use_skill {"name": "deploy"}\n---\ntext: done'
    options = ["--use-tools", "--set", "server.show_tool_calls=content"]
    options += ["--set", "knowledge.server=true"] if allowed else []
    with serving(program, *program.scripted(script), *options) as url:
        body = {"messages": [{"role": "user", "content": "/greet Ann"}]}
        answer = httpx.post(f"{url}/chat/completions", json=body, timeout=PATIENCE).json()
    content = answer["choices"][0]["message"]["content"]
    assert ("unknown tool" in content) != allowed


def test_a_shared_session_has_them_and_names_them(program: Program) -> None:
    fill(program)
    with cliserver(program, "text: yes") as url:
        state = httpx.get(f"{url}/session", timeout=PATIENCE).json()
        assert [command["name"] for command in state["commands"]] == ["init", "greet"]
        assert state["skills"] == [{"name": "deploy", "description": "Ships it."}]
        parts = httpx.get(f"{url}/context", timeout=PATIENCE).json()["parts"]
        assert "AGENTS.md" in [part["name"] for part in parts]
        answer = httpx.post(f"{url}/request", json={"prompt": "/greet Ann"}, timeout=PATIENCE)
        assert answer.json()["content"] == "yes"
        refused = httpx.post(f"{url}/request", json={"prompt": "/init"}, timeout=PATIENCE)
        assert refused.status_code == 400
        assert "/init improve" in refused.text
        messages = httpx.get(f"{url}/session", timeout=PATIENCE).json()["messages"]
        assert [message["content"] for message in messages] == ["Say hello to Ann.", "yes"]


@pytest.mark.parametrize("knowledge", [True, False])
async def test_from_python_there_is_an_option(places: Places, *, knowledge: bool) -> None:
    places.write("part/.shepherd/commands/greet.md", "Say hello to $1.")
    script = places.write("~/script", "text: yes")
    model = f"script:{script}"
    async with shepherd.open(model=model, directory=places.cwd, knowledge=knowledge) as chat:
        await chat.answer("/greet Ann")
        expected = "Say hello to Ann." if knowledge else "/greet Ann"
        assert chat.messages[0].content == expected
        use = await chat.context()
        assert use.used >= sum(part.tokens for part in use.parts) > 0
