"""A home with models and providers, and pools of its settings."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.models import builtin_model
from shepherd.server.pool.pool import ModelPool, open_pool

PROVIDERS = """
[cloud]
type = "openai"
model = "gpt-4o"
base_url = "http://127.0.0.1:1/v1"

[relay]
type = "anthropic"
model = "claude-sonnet-4-5"
base_url = "http://127.0.0.1:1"

[disk]
type = "llamacpp"
model = "/no/such/file.gguf"
"""


@dataclass
class Home:
    """A home directory; `opened` are the models that were opened, in order."""

    path: Path
    opened: list[str] = field(default_factory=list[str])
    scripts: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, Exception] = field(default_factory=dict[str, Exception])

    @property
    def models(self) -> Path:
        return self.path / "models"

    def __post_init__(self) -> None:
        self.models.mkdir(parents=True)
        folder = self.path / ".config" / "shepherd"
        folder.mkdir(parents=True)
        (folder / "providers.toml").write_text(PROVIDERS)

    def add_model(self, name: str) -> None:
        """Put a copy of the built-in model into the models directory."""
        path = self.models / f"{name}.gguf"
        path.parent.mkdir(exist_ok=True)
        copyfile(builtin_model(), path)

    @property
    def book(self) -> ProviderBook:
        env = {"HOME": str(self.path)}
        return ProviderBook(Paths.from_env(env), env)

    def config(self, provider: str = "", name: str = "pup", **server: Any) -> Config:
        engine = {"models_dir": str(self.models), "threads": 1, "context_size": 1024}
        model = {"provider": provider, "name": name}
        table = {"model": model, "server": server, "llamacpp": engine}
        return Config.model_validate(table)

    async def open(
        self, config: Config, opener: Callable[[Config], Awaitable[Backend]] | None = None
    ) -> ModelPool:
        """The models of the settings, of which the default one is loaded."""
        pool = await open_pool(config, self.book, opener or self.open_scripted)
        await pool.load_default()
        return pool

    async def open_scripted(self, config: Config) -> Backend:
        """A scripted backend that says its name."""
        name = config.model.provider or Path(config.model.name).stem
        self.opened.append(name)
        if name in self.failures:
            raise self.failures[name]
        return ScriptedBackend(parse_script(self.scripts.get(name, f"text: I am {name}.")), name)
