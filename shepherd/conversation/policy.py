"""The permission policy and the sandbox that the settings ask for."""

from collections.abc import Iterable
from pathlib import Path

from shepherd.config.paths import Paths
from shepherd.config.sections import PermissionRule
from shepherd.config.settings import Config
from shepherd.tools.permissions.policy import ApproveMode, PermissionPolicy
from shepherd.tools.permissions.rules import Decision, Rule
from shepherd.tools.permissions.store import PermissionStore
from shepherd.tools.sandbox.sandbox import Sandbox, SandboxMode


def build_policy(config: Config, paths: Paths, cwd: Path) -> PermissionPolicy:
    """The policy of one conversation in `cwd`; raises ConfigError if the store is broken."""
    return PermissionPolicy(
        cwd,
        ApproveMode(config.permissions.approve),
        user=[*_own_files(paths), *_rules(config.permissions.rules)],
        project=_rules(config.project_rules),
        store=PermissionStore(paths.permissions_file),
        spill_dir=paths.spill,
    )


def build_sandbox(config: Config) -> Sandbox:
    """The sandbox for commands; nothing is tried before it is needed."""
    tools = config.tools
    return Sandbox(
        SandboxMode(tools.sandbox),
        writable=tuple(Path(path).expanduser() for path in tools.sandbox_writable),
        readable=tuple(Path(path).expanduser() for path in tools.sandbox_readable),
    )


def _own_files(paths: Paths) -> list[Rule]:
    """Shepherd's settings and keys, wherever the environment puts them."""
    return [
        Rule("read", str(paths.keys_file), Decision.DENY),
        Rule("read", str(paths.credentials_file), Decision.DENY),
        Rule("read", str(paths.providers_file), Decision.DENY),
        Rule("write", f"{paths.config}/**", Decision.DENY),
    ]


def _rules(entries: Iterable[PermissionRule]) -> list[Rule]:
    return [Rule(e.tool, e.pattern, Decision(e.decision), e.scope) for e in entries]
