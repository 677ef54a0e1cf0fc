"""The providers in one file of the user, by name."""

from pathlib import Path
from typing import Any, cast

from shepherd.config.files import read_text
from shepherd.config.layers import MAX_FILE_BYTES
from shepherd.config.locate import line_of
from shepherd.config.provider import Provider, make_provider
from shepherd.errors import ConfigError
from shepherd.validation import nearest


class ProviderStore:
    """The providers in the file at `path`, which need not exist; it is read for each call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Provider]:
        """All providers by priority, then name; raises ConfigError with file and line."""
        try:
            text = read_text(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return []
        return sorted(self._parse(text), key=lambda p: (p.priority, p.name))

    def get(self, name: str) -> Provider:
        """The provider called `name`; raises ConfigError that lists the existing ones."""
        providers = self.all()
        result = next((p for p in providers if p.name == name), None)
        if result is None:
            raise ConfigError(unknown_provider(name, [p.name for p in providers]))
        return result

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

    def _parse(self, text: str) -> list[Provider]:
        import tomllib

        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"{self.path}: not valid TOML: {error}") from error
        return [self._one(text, name, values) for name, values in data.items()]

    def _one(self, text: str, name: str, values: object) -> Provider:
        try:
            if not isinstance(values, dict):
                raise ConfigError(f"{name} must be a table: write [{name}] above its settings")
            return make_provider(name, cast(dict[str, Any], values), is_stored=True)
        except ConfigError as error:
            where = f"{self.path}:{line_of(text, (name,))}"
            problems_text = "\n".join(f"{where}: {line}" for line in str(error).splitlines())
            raise ConfigError(problems_text) from None


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
