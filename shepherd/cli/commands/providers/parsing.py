"""Parses providers from text: `--backend TYPE` and its options, or a change `KEY VALUE`."""

from collections.abc import Mapping

from shepherd.cli.terminal.secrets import STDIN, read_key
from shepherd.config.provider import Provider, make_provider
from shepherd.config.provider_book import Ephemeral, ProviderBook
from shepherd.config.secrets import ENVIRONMENT
from shepherd.config.settings import bare_type, parse_bool
from shepherd.conversation.model_choice import override_model
from shepherd.errors import ConfigError, UsageError
from shepherd.validation import did_you_mean

_PLACES = ("", "none", "file", "keyring")
_HEADER = "headers."
_NUMBERS: Mapping[object, type[int] | type[float]] = {int: int, float: float}


def ephemeral_provider(
    backend: str | None, api_base: str | None, api_key: str | None, model: str | None
) -> Ephemeral | None:
    """The provider of `--backend`, None without it; its name is its type.

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
    provider: str | None, ephemeral: Ephemeral | None, model: str | None
) -> Mapping[str, object]:
    """The settings by which `--provider`, `--backend` and `--model` choose the model."""
    if ephemeral is not None:
        if provider is not None:
            raise UsageError("--backend describes a provider; --provider names another one.")
        return {"model.provider": ephemeral.provider.name}
    return override_model(provider, model)


def changed(provider: Provider, key: str, value: str, book: ProviderBook) -> Provider:
    """The provider with `key` set to the text `value`; an API key in `value` is stored.

    Raises UsageError.
    """
    key = key if key.startswith(_HEADER) else key.replace("-", "_")
    if key == "api_key" and not _is_place(value):
        return with_key(provider, value, book)
    values = provider.model_dump(exclude_defaults=True)
    if key.startswith(_HEADER):
        values["headers"] = _headers(provider, key.removeprefix(_HEADER), value)
    else:
        values[key] = _parsed(key, value)
    return checked(provider.name, values)


def with_key(provider: Provider, secret: str, book: ProviderBook) -> Provider:
    """The provider with the key `secret`, which is stored."""
    place = provider.api_key if provider.api_key == "keyring" else "file"
    book.secrets.store(provider.name, secret, place)
    values = provider.model_dump(exclude_defaults=True)
    return checked(provider.name, {**values, "api_key": place})


def checked(name: str, values: Mapping[str, object]) -> Provider:
    """The provider; raises UsageError, because invalid values were typed."""
    try:
        return make_provider(name, values)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def _headers(provider: Provider, header: str, value: str) -> dict[str, str]:
    headers = {**provider.headers, header: value}
    return {name: text for name, text in headers.items() if text}


def _is_place(value: str) -> bool:
    """Whether the text is a place of a key, not a key itself."""
    return value in _PLACES or value.startswith(ENVIRONMENT)


def _parsed(key: str, value: str) -> object:
    field = Provider.model_fields.get(key)
    if field is None or key in ("name", "headers"):
        known = [name.replace("_", "-") for name in Provider.model_fields if name != "name"]
        suggestion = did_you_mean(key.replace("_", "-"), known) or f"; there are {', '.join(known)}"
        raise UsageError(f"a provider has no setting {key}{suggestion}")
    kind = bare_type(field)
    if kind == list[str]:
        return value.replace(",", " ").split()
    if kind is bool:
        return parse_bool(value)
    try:
        return _NUMBERS[kind](value.replace("_", ""))
    except (KeyError, ValueError):
        return value
