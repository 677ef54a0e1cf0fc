"""Providers in lines of text, for the command and for the prompt."""

from pathlib import PurePath
from urllib.parse import urlsplit

from shepherd.config.provider import Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.vendors import vendor_of
from shepherd.errors import ConfigError

ADD_OPTIONS = "add NAME --type TYPE --model MODEL"
HOW_TO_ADD = f"shepherd provider {ADD_OPTIONS}"


def summary(provider: Provider, book: ProviderBook) -> str:
    """Type, model, place and key of a provider in one line."""
    model = provider.model or "(its only model)"
    parts = [f"{provider.type:<10}", f"{model:<28}", _place(provider), _key_place(provider, book)]
    return "  ".join(part for part in parts if part).rstrip()


def details(provider: Provider, book: ProviderBook) -> list[tuple[str, str]]:
    """The stored properties of a provider; never its key or a header's value."""
    facts = book.facts(provider)
    context = f"{facts.context:,} tokens ({facts.context_source})" if facts.context else ""
    rows = [
        ("name", provider.name),
        ("type", provider.type),
        ("model", provider.model or "(its only model)"),
        ("address", _address(provider)),
        ("key", _key(provider, book)),
        ("context", context or "(what the server says)"),
        ("output limit", f"{facts.output:,} tokens" if facts.output else ""),
        ("can", ", ".join(_abilities(provider, book))),
        ("effort", provider.effort),
        ("dialect", provider.dialect),
        ("headers", ", ".join(provider.headers)),
        ("priority", str(provider.priority)),
        ("asked", "" if provider.ask else "by no other model"),
    ]
    return [(name, text) for name, text in rows if text]


def key_advice(provider: Provider, book: ProviderBook) -> str:
    """Advice for a provider that needs a key and has none; "" if nothing is missing."""
    vendor = vendor_of(provider)
    if vendor is None or provider.api_key or book.key(provider).value:
        return ""
    return (
        f"There is no key yet: set {vendor.variables[0]}, or run "
        f"`shepherd provider set {provider.name} api-key -`."
    )


def _place(provider: Provider) -> str:
    urls = provider.urls
    if len(urls) > 1:
        return f"{len(urls)} servers"
    return urlsplit(urls[0]).netloc if urls else ""


def _address(provider: Provider) -> str:
    if provider.is_local:
        return "(in this process)"
    from shepherd.backends.connect import address_of

    try:
        return ", ".join(address_of(provider.at(url)) for url in provider.urls or ("",))
    except ConfigError as error:
        return str(error)


def _key_place(provider: Provider, book: ProviderBook) -> str:
    try:
        secret = book.key(provider)
    except ConfigError:
        return "key missing"
    if secret.value:
        return f"key: {PurePath(secret.source).name}"
    return "no key" if vendor_of(provider) is not None else ""


def _key(provider: Provider, book: ProviderBook) -> str:
    try:
        secret = book.key(provider)
    except ConfigError as error:
        return str(error)
    return f"{secret.masked} ({secret.source})" if secret.value else "(none)"


def _abilities(provider: Provider, book: ProviderBook) -> list[str]:
    facts = book.facts(provider)
    return [name for name in ("vision", "thinking") if getattr(facts, name)]
