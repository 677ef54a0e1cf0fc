"""The locations of Shepherd's files, in the XDG base directories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

PROJECT_FILE = ".shepherd.toml"
PROJECT_HOOKS_FILE = ".shepherd/hooks.toml"
PROJECT_MCP_FILES = (".shepherd/mcp.toml", ".mcp.json")
"""The files with a project's MCP servers; other agents read the second one, too."""


class _Place:
    """A file or directory in one of the four directories of Paths: a property that reads them."""

    def __init__(self, directory: Literal["config", "state", "data", "cache"], name: str) -> None:
        self._directory = directory
        self._name = name

    def __get__(self, paths: "Paths", _class: type["Paths"]) -> Path:
        directory: Path = getattr(paths, self._directory)
        return directory / self._name


class Paths(Struct, frozen=True):
    """Shepherd's directories; none of them need exist."""

    config: Path
    state: Path
    data: Path
    cache: Path

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Paths":
        """The directories from the environment; relative ones are ignored, as XDG requires."""
        home = Path(env.get("HOME") or Path.home())

        def base(variable: str, default: str) -> Path:
            directory = Path(env.get(variable, ""))
            return (directory if directory.is_absolute() else home / default) / "shepherd"

        return cls(
            config=base("XDG_CONFIG_HOME", ".config"),
            state=base("XDG_STATE_HOME", ".local/state"),
            data=base("XDG_DATA_HOME", ".local/share"),
            cache=base("XDG_CACHE_HOME", ".cache"),
        )

    user_file = _Place("config", "config.toml")

    keys_file = _Place("config", "keys.json")

    providers_file = _Place("config", "providers.toml")

    credentials_file = _Place("config", "credentials.toml")
    """Keys of providers, readable only by the user."""

    models_file = _Place("config", "models.toml")
    """The user's facts about models, which override the model database."""

    mcp_file = _Place("config", "mcp.toml")
    """The user's MCP servers."""

    mcp_logs = _Place("state", "mcp")
    """What MCP servers wrote to stderr."""

    suggestions_file = _Place("state", "suggested")
    """The models and keys on this machine that were suggested once."""

    permissions_file = _Place("config", "permissions.toml")
    """The permission rules from the answer "always"."""

    accepted_file = _Place("config", "accepted.json")
    """The commands of projects that the user accepted."""

    sessions = _Place("state", "sessions")

    schedule = _Place("state", "schedule")
    """The scheduled prompts, and the logs of their runs."""

    memory_file = _Place("state", "memory.db")
    """Messages that were evicted from conversations, and facts."""

    undo_file = _Place("state", "undo.db")
    """Files as they were before tools changed them."""

    layers = _Place("state", "layers")
    """What commands change, until it is committed."""

    patches = _Place("state", "patches")
    """Changes that waited for an answer when their session ended."""

    responses_file = _Place("state", "responses.db")
    """Responses that clients of the server stored."""

    usage_file = _Place("state", "usage.db")
    """What was used with the keys of the server."""

    slots = _Place("state", "slots")
    """Conversations that clients of llama.cpp's API saved, as tokens."""

    audit_file = _Place("state", "audit.jsonl")
    """The tools that clients had the server run."""

    signing_key_file = _Place("state", "signing.key")
    """The key with which the server signs what its clients send back."""

    served = _Place("state", "cliserver")
    """The session that `--cliserver` continues, by working directory."""

    launch_log = _Place("state", "launch.log")
    """The log of the server that `shepherd launch` started last."""

    history_file = _Place("state", "history")

    models = _Place("data", "models")

    spill = _Place("cache", "spill")
    """The directory for tool output that is too long for a result."""

    conversations = _Place("cache", "conversations")
    """Saved states of models, so that conversations need not be computed again."""

    tried_models = _Place("cache", "tried_models")
    """An empty file for each kind of model file that llama.cpp has loaded without ending."""


def project_file(cwd: Path) -> Path | None:
    """The nearest `.shepherd.toml` from `cwd` up to the root of its git repository.

    Outside a repository, only `cwd` itself is searched.
    """
    return _nearest(cwd, PROJECT_FILE)


def project_mcp_files(cwd: Path) -> list[Path]:
    """The nearest file of each name in PROJECT_MCP_FILES, found like `project_file`."""
    nearest = [_nearest(cwd, name) for name in PROJECT_MCP_FILES]
    return [path for path in nearest if path is not None]


def project_hooks_file(cwd: Path) -> Path | None:
    """The nearest `.shepherd/hooks.toml`, found like `project_file`."""
    return _nearest(cwd, PROJECT_HOOKS_FILE)


def _nearest(cwd: Path, name: str) -> Path | None:
    """The file of this name in the nearest directory of a project that has one."""
    for directory in _up_to_repository_root(cwd):
        candidate = directory / name
        if candidate.is_file():
            return candidate
    return None


def _up_to_repository_root(cwd: Path) -> list[Path]:
    """`cwd` and its parents up to the root of its git repository; without one, `cwd` alone."""
    directories = [cwd, *cwd.parents]
    for depth, directory in enumerate(directories, start=1):
        if (directory / ".git").exists():
            return directories[:depth]
    return [cwd]
