"""`shepherd apikey` and `shepherd usage`: the keys that open the server, and what they used."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct, structs

from shepherd.backends.tenant import TenantKind
from shepherd.cli.commands.arguments import Json, with_option_groups
from shepherd.cli.commands.output import note, show_table, warn
from shepherd.cli.request import loaded_config
from shepherd.cli.terminal.sanitize import one_line, sanitize
from shepherd.config import paths, section
from shepherd.errors import UsageError
from shepherd.prices import dollars
from shepherd.server.access.key import (
    MAX_LIMIT,
    MAX_NOTE,
    MAX_SHARE,
    MIN_SHARE,
    MODEL_PATTERN,
    USER_SCOPES,
    ApiKey,
    KeyLimits,
    KeyScope,
    format_time,
)

if TYPE_CHECKING:
    from shepherd.server.access.keys import Keys
    from shepherd.server.access.usage import UsageStore


NOTE_WIDTH = 60
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")
_USAGE_COLUMNS = ("day", "key", "model", "requests", *_TOKENS, "cost")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"(?P<number>[0-9]{1,5})(?P<unit>[mhdw])")
_EXAMPLES = "write 30m, 12h, 30d, 8w"

apikey = typer.Typer(
    name="apikey", help="API keys for `shepherd --server --auth-mode json`.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(help="Name of the key.")]
Limit = Annotated[int | None, typer.Option(min=1, max=MAX_LIMIT, help="Without it: no limit.")]


class KeyOptions(Struct, frozen=True, kw_only=True):
    """What a new key may do."""

    note: str = ""
    """A remark for yourself."""
    expires: str | None = None
    """When it ends: 12h, 30d, or a date (to the end of that day, UTC)."""
    scope: list[KeyScope] | None = None
    """What it opens; repeatable. Without any: chat, embed, tools."""
    model: list[str] | None = None
    """A model that it may use, with `*`; repeatable. Without any: all."""
    requests_per_minute: Limit = None
    tokens_per_minute: Limit = None
    requests_per_day: Limit = None
    tokens_per_day: Limit = None
    share: Annotated[float, typer.Option(min=MIN_SHARE, max=MAX_SHARE)] = 1.0
    """Its part of a busy model, beside keys with 1."""
    kind: TenantKind = TenantKind.AGENT
    """Who waits for its answers. A person comes first, a batch last."""

    def restrict(self, key: ApiKey) -> ApiKey:
        """The key with these restrictions; raises UsageError."""
        expires = None if self.expires is None else parse_expiry(self.expires, datetime.now(UTC))
        if len(self.note) > MAX_NOTE or not self.note.isprintable():
            raise UsageError(f"--note: use at most {MAX_NOTE} printable characters on one line.")
        for pattern in self.model or ():
            if not re.fullmatch(MODEL_PATTERN, pattern):
                raise UsageError(
                    f"--model {pattern!r}: a name or pattern without spaces is needed."
                )
        return structs.replace(
            key,
            note=self.note,
            expires=expires,
            scopes=frozenset(self.scope) if self.scope else USER_SCOPES,
            models=tuple(self.model or ()),
            limits=KeyLimits(
                self.requests_per_minute,
                self.tokens_per_minute,
                self.requests_per_day,
                self.tokens_per_day,
            ),
            share=self.share,
            kind=self.kind,
        )


@apikey.command("add")
@with_option_groups
def add_key(context: typer.Context, name: Name, options: KeyOptions) -> None:
    """Make a key and show it once; only its hash is stored."""
    secret = _keys(context).add(name, options.restrict)
    note(f"Key {name}: keep it now, it can't be shown again.")
    if loaded_config(context).server.auth_mode is not section.AuthMode.JSON:
        note("A server asks for keys when it is started with --auth-mode json.")
    typer.echo(secret)


@apikey.command("list")
def list_keys(context: typer.Context) -> None:
    """Name, beginning, age, scopes and end of all keys."""
    keys = _keys(context).keys()
    for line in table(keys, datetime.now(UTC), _last_uses(context)):
        typer.echo(line)
    if not keys:
        note("No keys yet; make one with `shepherd apikey add NAME`.")


@apikey.command("show")
def show_key(context: typer.Context, name: Name) -> None:
    """What a key may do, its limits, and when it was made and last used."""
    for line in details(_keys(context).get(name), datetime.now(UTC), _last_uses(context)):
        typer.echo(line)


@apikey.command("rotate")
def rotate_key(
    context: typer.Context,
    name: Name,
    grace: Annotated[
        str | None,
        typer.Option(help="How long the old secret stays valid: 10m, 12h, 7d. Without it: not."),
    ] = None,
) -> None:
    """Give a key a new secret and show it once; the rest of the key stays."""
    period = timedelta() if grace is None else parse_duration(grace)
    secret = _keys(context).rotate(name, period)
    old = f"for {grace} more" if period else "no longer"
    note(f"Key {name}: keep it now. The old secret is {old} valid.")
    typer.echo(secret)


@apikey.command("remove")
def remove_key(context: typer.Context, name: Name) -> None:
    """Make a key invalid, for a running server too."""
    _keys(context).remove(name)
    note(f"Key {name} is no longer valid.")


def usage(
    context: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=36_500, help="How many days, with today.")] = 30,
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    as_json: Json = False,
) -> None:
    """Requests, tokens and cost of the server's keys, per day (UTC) and model."""
    store = _usage_store(context)
    uses = [] if store is None else store.read(days, key).result()
    rows = [{name: getattr(use, name) for name in _USAGE_COLUMNS} for use in uses]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        show_table([_USAGE_COLUMNS, *([_cell(value) for value in row.values()] for row in rows)])
    else:
        note("Nothing was used yet; `shepherd --server --auth-mode json` counts.")


def _cell(value: str | float | None) -> str:
    """A value of a row; only costs are no whole numbers, and only they may be unknown."""
    if value is None:
        return "-"
    return dollars(value) if isinstance(value, float) else str(value)


def _last_uses(context: typer.Context) -> Mapping[str, int]:
    """When keys were last used; none if that can't be read."""
    from shepherd.server.access.usage import UsageError

    try:
        store = _usage_store(context)
        return {} if store is None else store.last_used()
    except UsageError as error:
        warn(f"the last uses are unknown: {error}")
        return {}


def _usage_store(context: typer.Context) -> "UsageStore | None":
    """The store of uses, in the database of the settings or in a file; None without one."""
    from shepherd.cli.serve.database import configured_database, usage_store  # imports FastAPI

    server = configured_database(loaded_config(context), os.environ)
    return usage_store(server, paths.Paths.from_env(os.environ))


def _keys(context: typer.Context) -> "Keys":
    """The store of keys, in the database of the settings or in a file."""
    from shepherd.cli.serve.database import configured_database, key_store  # imports FastAPI

    server = configured_database(loaded_config(context), os.environ)
    return key_store(server, paths.Paths.from_env(os.environ))


def table(keys: Sequence[ApiKey], now: datetime, used: Mapping[str, int]) -> Iterator[str]:
    """One line for each key; `used` has the Unix times of the last uses by name."""
    width = max((len(key.name) for key in keys), default=0)
    for key in keys:
        # those of most keys are the default, so they say nothing
        scopes = "" if key.scopes == USER_SCOPES else ",".join(_sorted_scopes(key))
        end = ""
        if key.expires is not None:
            end = f"{'expired' if key.is_expired(now) else 'until'} {format_time(key.expires)}"
        parts = (
            f"{key.name:<{width}}",
            f"{key.prefix}…",
            format_time(key.created),
            f"used {_last_use(key, used)}",
            scopes,
            end,
            one_line(key.note, NOTE_WIDTH),
        )
        yield "  ".join(part for part in parts if part)


def details(key: ApiKey, now: datetime, used: Mapping[str, int]) -> Iterator[str]:
    """All that is known of a key; `used` as in `table`."""
    yield f"name       {key.name}"
    yield f"secret     {key.prefix}…"
    if key.note:
        yield f"note       {sanitize(key.note)}"
    yield f"created    {format_time(key.created)}"
    yield f"last used  {_last_use(key, used)}"
    yield f"expires    {'never' if key.expires is None else format_time(key.expires)}"
    yield f"scopes     {', '.join(_sorted_scopes(key))}"
    yield f"models     {', '.join(key.models) or 'all'}"
    limits = [
        f"{value} {name.replace('_', ' ')}"
        for name, value in structs.asdict(key.limits).items()
        if value is not None
    ]
    yield f"limits     {', '.join(limits) or 'none'}"
    yield f"share      {key.share:g}, {key.kind}"
    old = key.old_secret
    if old is not None and now < old.until:
        yield f"rotated    the old secret is valid until {format_time(old.until)}"


def _last_use(key: ApiKey, used: Mapping[str, int]) -> str:
    if key.name not in used:
        return "never"
    return format_time(datetime.fromtimestamp(used[key.name], UTC))


def _sorted_scopes(key: ApiKey) -> list[str]:
    """The scopes of a key in the order of their definition."""
    return [scope for scope in KeyScope if scope in key.scopes]


def parse_duration(text: str) -> timedelta:
    """A duration such as `12h`; raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not int(match["number"]):
        raise UsageError(f"{text!r} is not a duration: {_EXAMPLES}.")
    return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


def parse_expiry(text: str, now: datetime) -> datetime:
    """The time that a duration, a date or an ISO time names; raises UsageError if it is over.

    A date means the end of that day, and a time without a zone is in UTC.
    """
    try:
        end = _time(text.strip(), now).replace(microsecond=0)
    except (ValueError, OverflowError) as error:
        problem = f"{text!r} is not a time: {_EXAMPLES}, or a date like 2031-12-31."
        raise UsageError(problem) from error
    if end <= now:
        raise UsageError(f"{text!r} is in the past.")
    return end


def _time(text: str, now: datetime) -> datetime:
    """The time in UTC that a text names; raises ValueError or OverflowError."""
    if _DURATION.fullmatch(text):
        return now + parse_duration(text)
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        day_after = date.fromisoformat(text) + timedelta(days=1)
        return datetime.combine(day_after, time(), UTC)  # the midnight at the end of the day
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
