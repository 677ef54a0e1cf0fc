"""Servers of a project in the terminal: consent, a call, a form, and the state."""

import json
import sys
from pathlib import Path

from tests.e2e.conftest import Start
from tests.mcp.test_processes import program

ASKS = """
FORM = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
def do(id):
    say(id="q", method="elicitation/create", params={"message": "Where?", "requestedSchema": FORM})
    answer = json.loads(sys.stdin.readline())
    text(id, "You are in " + answer["result"]["content"]["city"])
"""


def test_a_server_is_accepted_and_asks_in_the_terminal(start: Start, work: Path) -> None:
    (work / "server.py").write_text(program(ASKS))
    command = {"command": sys.executable, "args": ["-S", "-E", str(work / "server.py")]}
    (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"one": command}}))
    env = {"SHEPHERD_TOOLS__SANDBOX": "off"}  # a test of boxes takes long on a slow machine
    terminal = start("call: one__do {}\n---\ntext: It is done.\n", columns=100, rows=30, env=env)
    terminal.wait_for(r"(?m)^script · .*tokens")
    terminal.say("go")
    shown = terminal.wait_asked("Allow start_mcp_server")
    assert f"{sys.executable} -S -E" in shown
    terminal.choose("y")
    terminal.wait_asked("Allow one__do")
    terminal.choose("y")
    terminal.wait_asked("asks you to answer a form")
    terminal.choose("y")
    terminal.wait_for(r"city \(string\)")
    terminal.say("Ghent")
    assert "You are in Ghent" in terminal.wait_for("It is done")
    terminal.say("/mcp")
    terminal.wait_for(r"one +ready, 1 tool")
