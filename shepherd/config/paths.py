"""The locations of Shepherd's files, in the XDG base directories."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

PROJECT_FILE = ".shepherd.toml"
PROJECT_HOOKS_FILE = ".shepherd/hooks.toml"
PROJECT_MCP_FILES = (".shepherd/mcp.toml", ".mcp.json")
"""The files with a project's MCP servers; other agents read the second one, too."""


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

    @property
    def user_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def keys_file(self) -> Path:
        return self.config / "keys.json"

    @property
    def providers_file(self) -> Path:
        return self.config / "providers.toml"

    @property
    def credentials_file(self) -> Path:
        """Keys of providers, readable only by the user."""
        return self.config / "credentials.toml"

    @property
    def models_file(self) -> Path:
        """The user's facts about models, which override the model database."""
        return self.config / "models.toml"

    @property
    def mcp_file(self) -> Path:
        """The user's MCP servers."""
        return self.config / "mcp.toml"

    @property
    def mcp_logs(self) -> Path:
        """What MCP servers wrote to stderr."""
        return self.state / "mcp"

    @property
    def suggestions_file(self) -> Path:
        """The models and keys on this machine that were suggested once."""
        return self.state / "suggested"

    @property
    def permissions_file(self) -> Path:
        """The permission rules from the answer "always"."""
        return self.config / "permissions.toml"

    @property
    def accepted_file(self) -> Path:
        """The commands of projects that the user accepted."""
        return self.config / "accepted.json"

    @property
    def sessions(self) -> Path:
        return self.state / "sessions"

    @property
    def schedule(self) -> Path:
        """The scheduled prompts, and the logs of their runs."""
        return self.state / "schedule"

    @property
    def memory_file(self) -> Path:
        """Messages that were evicted from conversations, and facts."""
        return self.state / "memory.db"

    @property
    def undo_file(self) -> Path:
        """Files as they were before tools changed them."""
        return self.state / "undo.db"

    @property
    def responses_file(self) -> Path:
        """Responses that clients of the server stored."""
        return self.state / "responses.db"

    @property
    def usage_file(self) -> Path:
        """What was used with the keys of the server."""
        return self.state / "usage.db"

    @property
    def audit_file(self) -> Path:
        """The tools that clients had the server run."""
        return self.state / "audit.jsonl"

    @property
    def signing_key_file(self) -> Path:
        """The key with which the server signs what its clients send back."""
        return self.state / "signing.key"

    @property
    def served(self) -> Path:
        """The session that `--cliserver` continues, by working directory."""
        return self.state / "cliserver"

    @property
    def history_file(self) -> Path:
        return self.state / "history"

    @property
    def models(self) -> Path:
        return self.data / "models"

    @property
    def spill(self) -> Path:
        """The directory for tool output that is too long for a result."""
        return self.cache / "spill"

    @property
    def conversations(self) -> Path:
        """Saved states of models, so that conversations need not be computed again."""
        return self.cache / "conversations"


def project_file(cwd: Path) -> Path | None:
    """The nearest `.shepherd.toml` from `cwd` up to the root of its git repository.

    Outside a repository, only `cwd` itself is searched.
    """
    for directory in _up_to_repository_root(cwd):
        candidate = directory / PROJECT_FILE
        if candidate.is_file():
            return candidate
    return None


def project_mcp_files(cwd: Path) -> list[Path]:
    """The nearest file of each name in PROJECT_MCP_FILES, found like `project_file`."""
    places = _up_to_repository_root(cwd)
    nearest = (
        next((path for place in places if (path := place / name).is_file()), None)
        for name in PROJECT_MCP_FILES
    )
    return [path for path in nearest if path is not None]


def project_hooks_file(cwd: Path) -> Path | None:
    """The nearest `.shepherd/hooks.toml`, found like `project_file`."""
    places = (place / PROJECT_HOOKS_FILE for place in _up_to_repository_root(cwd))
    return next((path for path in places if path.is_file()), None)


def _up_to_repository_root(cwd: Path) -> list[Path]:
    directories = [cwd, *cwd.parents]
    for depth, directory in enumerate(directories, start=1):
        if (directory / ".git").exists():
            return directories[:depth]
    return [cwd]
