"""Sessions of everyday commands ask little about their effects, and undo takes all of them back."""

from pathlib import Path

import pytest

from bench.questions.prefixes import PrefixRules
from bench.questions.replay import Outcome, Session, replay, sessions
from shepherd.tools.permissions.approval import Choice
from shepherd.tools.sandbox.boxes.landlock import Landlock
from tests.examples import some
from tests.tools.sandbox.boxes import need

SESSIONS = {f"{session.project}: {session.task}": session for session in sessions()}
MOST = {
    "python: mend a failing test": 2,
    "python: find out how something works": 0,
    "node: lint and format the tree": 2,
}
"""How many questions a session may ask if each is answered with "this session"."""


async def replay_with(session: Session, base: Path, widest: Choice) -> Outcome:
    need(Landlock())
    return await replay(session, base, effects=True, widest=widest)


@pytest.mark.parametrize("name", MOST)
async def test_a_session_asks_little_and_is_undone(name: str, tmp_path: Path) -> None:
    outcome = await replay_with(SESSIONS[name], tmp_path, Choice.SESSION)
    assert outcome.lost == []
    assert len(outcome.questions) <= MOST[name], outcome.questions


@pytest.mark.long
@pytest.mark.parametrize("name", some(tuple(SESSIONS), "undo", 3))
async def test_undo_takes_back_every_session(name: str, tmp_path: Path) -> None:
    outcome = await replay_with(SESSIONS[name], tmp_path, Choice.ALWAYS)
    assert outcome.lost_bytes == 0
    # what runs outside of the box may make files that nobody keeps
    assert not outcome.lost or outcome.ran_outside, outcome.lost


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["cat a | head -3", "git log -2 && ls *.py", "sed -n 1,4p a 2>/dev/null"], 0),
        (["npm test", "npm test -- a", "timeout 9 npm test"], 1),
        (["npm test && ls", "npm test; npm run build", "npm run lint"], 2),
        (["echo 1 > a", "cat > b <<EOF\nrm -rf /\nEOF", "echo 3 >> c"], 1),
        (["cd src && git status", "cd src && git status", "cd src && ls"], 2),
        (["find . -name '*.py'", "find . -name a*", "find . -delete", "find . -delete"], 2),
        (["find . | xargs wc -l", "grep -l a b | xargs sed -i s/a/b/", "sed -i s/a/b/ c"], 1),
        (["for f in *.c; do make $f; done", "X=1 make $f"], 1),
    ],
)
def test_the_model_of_prefixes_asks_as_documented(lines: list[str], count: int) -> None:
    rules = PrefixRules(set())
    assert sum(rules.asks(line) for line in lines) == count


def test_the_sessions_are_many_and_different() -> None:
    commands = [command for session in SESSIONS.values() for command in session.commands]
    assert len(SESSIONS) >= 25
    assert len(commands) >= 300
    assert len(set(commands)) >= 200
