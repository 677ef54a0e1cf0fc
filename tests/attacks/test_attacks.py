"""Every attack under the real rules, with nobody to say yes; what is allowed really runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.config.choices import ApproveMode
from shepherd.messages import ToolCall
from shepherd.tools.base import ToolContext
from shepherd.tools.builtin import default_registry
from shepherd.tools.permissions.approval import DenyingApprover
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.runner import ToolRunner
from tests.attacks.corpus import SECRET, Attack, Place, load, names

ATTACKS = [
    pytest.param(attack, id=f"{name}-{attack.id}") for name in names() for attack in load(name)
]
TIMEOUT = 20.0


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_does_no_harm(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = attack.prepare(tmp_path / "place")
    environment = {"HOME": str(place.home), "XDG_CONFIG_HOME": str(place.home / ".config")}
    for name, value in {**environment, **attack.environment}.items():
        monkeypatch.setenv(name, place.fill(value))
    rules = [parse_rule(place.fill(rule)) for rule in attack.rules]
    policy = PermissionPolicy(place.work, ApproveMode(attack.mode), user=rules)
    context = ToolContext(place.work, tmp_path / "spill", timeout=TIMEOUT)
    runner = ToolRunner(default_registry(), policy, DenyingApprover(), context)
    before = outside_files(place)
    arguments = {"command": attack.command(place)}
    result = await runner.run(ToolCall("call_1", "execute_command", arguments))
    if attack.must_ask:
        assert result.content.startswith(("Error: denied", "Error: the command has"))
    assert SECRET not in result.content
    assert marks(tmp_path) == []
    assert outside_files(place) == before
    assert SECRET not in "".join(_new_texts(place))


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
