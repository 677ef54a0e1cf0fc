"""The provider that a command line describes, for one run."""

from collections.abc import Mapping

from shepherd.cli.terminal.errors import UsageError
from shepherd.cli.terminal.read_key import STDIN, read_key
from shepherd.config.provider_book import Ephemeral
from shepherd.config.providers import LOCAL, make_provider
from shepherd.errors import ConfigError


def given_provider(
    backend: str | None, api_base: str | None, api_key: str | None, model: str | None
) -> Ephemeral | None:
    """The provider of `--backend`, None without it; it is called like its type.

    Raises UsageError.
    """
    if backend is None:
        if api_base is not None or api_key is not None:
            raise UsageError("--api-base and --api-key belong to --backend TYPE.")
        return None
    key = read_key("Key: ") if api_key == STDIN else api_key or ""
    values: Mapping[str, object] = {
        "type": backend,
        "base_url": api_base or "",
        "model": model or "",
    }
    try:
        return Ephemeral(make_provider(backend, values), key)
    except ConfigError as error:
        raise UsageError(f"--backend: {error}") from error


def model_overrides(
    provider: str | None, given: Ephemeral | None, model: str | None
) -> Mapping[str, object]:
    """The settings by which `--provider`, `--backend` and `--model` choose what answers."""
    if given is not None:
        if provider is not None:
            raise UsageError("--backend describes a provider; --provider names another one.")
        return {"model.provider": given.provider.name}
    if provider is None:
        return {} if model is None else {"model.name": model}
    name = "" if provider == LOCAL else provider
    if model is None:
        return {"model.provider": name}
    if not name:
        return {"model.provider": "", "model.name": model}
    return {"model.provider": f"{name.partition('/')[0]}/{model}"}
