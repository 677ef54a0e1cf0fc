"""All providers of one run: their file, their keys and the facts about their models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, structs

from shepherd.config import files, secrets
from shepherd.config.modeldb import ModelFacts, model_facts
from shepherd.config.paths import Paths
from shepherd.config.provider import Provider, make_provider, missing_type
from shepherd.errors import ConfigError
from shepherd.validation import nearest


class ProviderStore(Struct, frozen=True):
    """The providers in the file at `path`, which need not exist; it is read for each call."""

    path: Path

    def all(self) -> list[Provider]:
        """All providers by priority, then name; raises ConfigError with file and line."""
        text = files.read_settings(self.path)
        data = files.parse_toml(self.path, text)
        providers = [self._parsed(text, name, values) for name, values in data.items()]
        return sorted(providers, key=lambda p: (p.priority, p.name))

    def get(self, name: str) -> Provider:
        """The provider called `name`; raises ConfigError that lists the existing ones."""
        return provider_of(self.all(), name)

    def save(self, provider: Provider) -> None:
        """Add the provider, or replace the one with its name; comments stay."""
        from shepherd.config.edit import save_table

        save_table(self.path, provider.name, provider.model_dump(exclude_defaults=True))

    def remove(self, name: str) -> Provider:
        """Remove the provider from the file and return it; raises ConfigError if it is missing."""
        from shepherd.config.edit import remove_table

        provider = self.get(name)
        remove_table(self.path, name)
        return provider

    def _parsed(self, text: str, name: str, values: object) -> Provider:
        """The provider of one table in the file, whose `text` tells the lines of errors."""
        try:
            if not isinstance(values, dict):
                raise ConfigError(f"{name} must be a table: write [{name}] above its settings")
            return make_provider(name, cast(dict[str, Any], values), is_stored=True)
        except ConfigError as error:
            where = f"{self.path}:{files.line_of(text, (name,))}"
            problems_text = "\n".join(f"{where}: {line}" for line in str(error).splitlines())
            raise ConfigError(problems_text) from None  # the cause is in the text


def provider_of(providers: Sequence[Provider], name: str) -> Provider:
    """The provider called `name`; raises ConfigError that lists the existing ones."""
    for provider in providers:
        if provider.name == name:
            return provider
    raise ConfigError(unknown_provider(name, [provider.name for provider in providers]))


def unknown_provider(name: str, names: list[str]) -> str:
    """A message that there is no provider `name`, with advice."""
    if not names:
        return (
            f"There is no provider {name!r} and no other yet; "
            "`shepherd provider add --help` tells how to add one."
        )
    guess = nearest(name, names)
    meant = f" Did you mean {guess}?" if guess else ""
    return f"There is no provider {name!r}; there are {', '.join(names)}.{meant}"


class Ephemeral(Struct, frozen=True):
    """A provider from the command line; it is never stored."""

    provider: Provider
    key: str = ""


class ProviderBook:
    """The stored providers and an ephemeral one, which overrides a stored one of its name."""

    def __init__(
        self, paths: Paths, env: Mapping[str, str], ephemeral: Ephemeral | None = None
    ) -> None:
        self.store = ProviderStore(paths.providers_file)
        self.secrets = secrets.Secrets(paths.credentials_file, env)
        self._models_file = paths.models_file
        self._ephemeral = ephemeral

    @classmethod
    def from_env(cls, env: Mapping[str, str], ephemeral: Ephemeral | None = None) -> "ProviderBook":
        """The book of the user in this environment."""
        return cls(Paths.from_env(env), env, ephemeral)

    def all(self) -> list[Provider]:
        """All providers by priority, the ephemeral one first; raises ConfigError."""
        ephemeral = [self._ephemeral.provider] if self._ephemeral else []
        names = [provider.name for provider in ephemeral]
        return ephemeral + [p for p in self.store.all() if p.name not in names]

    def warnings(self) -> list[str]:
        """A sentence for each stored provider that has a type of a plugin which is missing."""
        try:
            providers = self.all()
        except ConfigError:  # the code that needs a provider reports it
            return []
        return [problem for problem in map(missing_type, providers) if problem]

    def pick(self, selector: str) -> Provider:
        """The provider of `NAME` or `NAME/MODEL`, with that model; raises ConfigError."""
        name, _, model = selector.partition("/")
        provider = provider_of(self.all(), name)
        return provider.model_copy(update={"model": model}) if model else provider

    def stored(self, name: str) -> Provider:
        """The provider of this name in the user's file; raises ConfigError."""
        ephemeral_name = self._ephemeral.provider.name if self._ephemeral else None
        if name == ephemeral_name and name not in [p.name for p in self.store.all()]:
            raise ConfigError(
                f"{name} is only on the command line, so nothing stored can be changed. "
                f"`shepherd provider add {name}` stores a provider."
            )
        return self.store.get(name)

    def following(self, selector: str) -> list[Provider]:
        """The other providers in order, starting after that of `selector`; all of them for ""."""
        providers = self.all()
        names = [p.name for p in providers]
        name = selector.partition("/")[0]
        if name not in names:  # also the local model, which is none of them
            return providers
        place = names.index(name)
        return providers[place + 1 :] + providers[:place]

    def is_local(self, selector: str) -> bool:
        """Whether the model runs in this process; "" is the local model of the settings."""
        return not selector or self.pick(selector).is_local

    def is_stored(self, provider: Provider) -> bool:
        """Whether the provider is the one in the user's file, not that of the command line."""
        return self._ephemeral is None or self._ephemeral.provider.name != provider.name

    def key(self, provider: Provider) -> secrets.Secret:
        """The provider's key; raises ConfigError if it is missing at its place."""
        ephemeral = self._ephemeral
        if ephemeral is not None and ephemeral.provider.name == provider.name and ephemeral.key:
            return secrets.Secret(ephemeral.key, "the command line")
        return self.secrets.find(provider)

    def facts(self, provider: Provider) -> ModelFacts:
        """The facts about the provider's model, overridden by the provider's settings."""
        facts = model_facts(provider.model, self._models_file)
        if provider.context_size:
            source = f"the setting {provider.name}.context_size"
            facts = structs.replace(facts, context=provider.context_size, context_source=source)
        return structs.replace(facts, output=provider.output_limit or facts.output)
