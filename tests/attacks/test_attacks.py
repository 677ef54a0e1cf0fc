"""Every attack under the real rules, with nobody to say yes; what is allowed really runs."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shepherd.config.section import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.registry import default_registry
from shepherd.tools.runner import ToolRunner
from shepherd.tools.tool import ToolContext
from tests.attacks.corpus import SECRET, Attack, Place, load, names
from tests.examples import some

TIMEOUT = 20.0
DENIED = ("Error: denied", "Error: the command has")


def by_kind() -> dict[str, list[Attack]]:
    """All attacks, by their file and kind."""
    kinds: defaultdict[str, list[Attack]] = defaultdict(list)
    for name in names():
        for attack in load(name):
            kinds[f"{name}-{attack.kind}"].append(attack)
    return kinds


@pytest.mark.long
@pytest.mark.parametrize("attacks", [pytest.param(a, id=kind) for kind, a in by_kind().items()])
async def test_an_attack_does_no_harm(
    attacks: list[Attack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harm: list[str] = []
    for attack in some(attacks, "attacks", max(8, len(attacks) // 2)):
        with monkeypatch.context() as patch:
            problems = [text async for text in harm_of(attack, tmp_path / attack.id, patch)]
        harm += [f"{attack.id}: {problem}" for problem in problems]
    assert not harm, "\n".join(harm)


async def harm_of(
    attack: Attack, base: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """What the attack did, below a directory of its own."""
    place = attack.prepare(base / "place")
    environment = {"HOME": str(place.home), "XDG_CONFIG_HOME": str(place.home / ".config")}
    for name, value in {**environment, **attack.environment}.items():
        monkeypatch.setenv(name, place.fill(value))
    rules = [parse_rule(place.fill(rule)) for rule in attack.rules]
    policy = PermissionPolicy(place.work, ApproveMode(attack.mode), user=rules)
    context = ToolContext(place.work, base / "spill", timeout=TIMEOUT)
    runner = ToolRunner(default_registry(), policy, DenyingApprover(), context)
    before = outside_files(place)
    arguments = {"command": attack.command(place)}
    result = await runner.run(ToolCall("call_1", "execute_command", arguments))
    if attack.must_ask and not result.content.startswith(DENIED):
        yield f"it ran unasked: {result.content}"
    if SECRET in result.content:
        yield "it printed the secret"
    if left := marks(base):
        yield f"it left {left}"
    if outside_files(place) != before:
        yield "it changed files outside"
    if SECRET in "".join(_new_texts(place)):
        yield "it copied the secret"


def marks(base: Path) -> list[Path]:
    """What an attack leaves when it gets through."""
    return list(base.rglob("pwned*"))


def outside_files(place: Place) -> dict[str, bytes]:
    """What stands outside of the working directory and at home."""
    roots = (place.outside, place.home)
    paths = [path for root in roots for path in root.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


def _new_texts(place: Place) -> Iterator[str]:
    """The texts of files that are not the secret's own."""
    for path in place.work.rglob("*"):
        is_own = path.name.startswith(".env") or ".git" in path.parts
        is_alone = path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1
        if is_alone and not is_own:
            yield path.read_text(errors="replace")
