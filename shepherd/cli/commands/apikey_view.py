"""API keys as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.server.access.key import USER_SCOPES, ApiKey, KeyScope, format_time

NOTE_WIDTH = 60


def table(keys: Sequence[ApiKey], now: datetime, used: Mapping[str, int]) -> Iterator[str]:
    """One line for each key; `used` has the Unix times of the last uses by name."""
    width = max((len(key.name) for key in keys), default=0)
    for key in keys:
        parts = [f"{key.name:<{width}}", f"{key.prefix}…", format_time(key.created)]
        parts.append(f"used {_last_use(key, used)}")
        parts += [part for part in (_scopes(key), _end(key, now)) if part]
        if key.note:
            parts.append(one_line(key.note, NOTE_WIDTH))
        yield "  ".join(parts)


def details(key: ApiKey, now: datetime, used: Mapping[str, int]) -> Iterator[str]:
    """All that is known of a key; `used` as in `table`."""
    yield f"name       {key.name}"
    yield f"secret     {key.prefix}…"
    if key.note:
        yield f"note       {sanitize(key.note)}"
    yield f"created    {format_time(key.created)}"
    yield f"last used  {_last_use(key, used)}"
    yield f"expires    {'never' if key.expires is None else format_time(key.expires)}"
    yield f"scopes     {', '.join(scope for scope in KeyScope if scope in key.scopes)}"
    yield f"models     {', '.join(key.models) or 'all'}"
    limits = {name: value for name, value in asdict(key.limits).items() if value is not None}
    yield f"limits     {', '.join(_limit(*item) for item in limits.items()) or 'none'}"
    old = key.old_secret
    if old is not None and now < old.until:
        yield f"rotated    the old secret is valid until {format_time(old.until)}"


def _last_use(key: ApiKey, used: Mapping[str, int]) -> str:
    if key.name not in used:
        return "never"
    return format_time(datetime.fromtimestamp(used[key.name], UTC))


def _scopes(key: ApiKey) -> str:
    if key.scopes == USER_SCOPES:
        return ""
    return ",".join(scope for scope in KeyScope if scope in key.scopes)


def _end(key: ApiKey, now: datetime) -> str:
    if key.expires is None:
        return ""
    return f"{'expired' if key.is_expired(now) else 'until'} {format_time(key.expires)}"


def _limit(name: str, value: int) -> str:
    return f"{value} {name.replace('_', ' ')}"
