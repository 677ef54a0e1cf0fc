"""The text of the key file: version 2, and version 1, whose keys had no restrictions."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, cast

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from shepherd.server.access.key import (
    MAX_LIMIT,
    MAX_NOTE,
    MODEL_PATTERN,
    NAME,
    ApiKey,
    KeyLimits,
    KeyScope,
    OldSecret,
    format_time,
)

VERSION = 2


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("times are texts")
    return value


_Text = Annotated[str, Field(strict=True)]
_Time = Annotated[AwareDatetime, BeforeValidator(_text)]
_Hash = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{64}\z")]
_Limit = Annotated[int, Field(strict=True, ge=1, le=MAX_LIMIT)] | None
_Name = Annotated[str, Field(strict=True, pattern=rf"^{NAME}\z")]
_Model = Annotated[str, Field(strict=True, pattern=rf"^{MODEL_PATTERN}\z")]


class _Entry(BaseModel):
    """The fields of every version."""

    name: _Name
    prefix: _Text
    sha256: _Hash
    created: _Time


class _Strict(BaseModel):
    """An unknown field could be a restriction."""

    model_config = ConfigDict(extra="forbid")


class _Limits(_Strict):
    requests_per_minute: _Limit
    tokens_per_minute: _Limit
    requests_per_day: _Limit
    tokens_per_day: _Limit


class _OldSecret(_Strict):
    sha256: _Hash
    until: _Time


class _Entry2(_Entry, _Strict):
    note: Annotated[str, Field(strict=True, max_length=MAX_NOTE)]
    expires: _Time | None
    scopes: list[KeyScope]
    models: list[_Model]
    limits: _Limits
    old_secret: _OldSecret | None


class _File1(_Strict):
    version: int
    keys: list[_Entry]


class _File2(_Strict):
    version: int
    keys: list[_Entry2]


class UnknownVersionError(ValueError):
    """The file was written by another version of Shepherd."""


def parse_keys(content: bytes) -> list[ApiKey]:
    """The keys of a file; raises ValueError for anything that this version does not write."""
    data: object = json.loads(content)
    if not isinstance(data, dict):
        raise ValueError("not a key file")
    version = cast(dict[str, Any], data).get("version")
    if version == VERSION:
        keys = [_key_2(entry) for entry in _File2.model_validate(data).keys]
    elif type(version) is int and version == 1:
        keys = [_key_1(entry) for entry in _File1.model_validate(data).keys]
    else:
        raise UnknownVersionError(str(version))
    if len({key.name for key in keys}) != len(keys):
        raise ValueError("two keys have one name")
    return keys


def format_keys(keys: list[ApiKey]) -> str:
    """The text of a file with these keys."""
    return json.dumps({"version": VERSION, "keys": [_entry(key) for key in keys]}, indent=2) + "\n"


def parse_entries(texts: Iterable[str]) -> list[ApiKey]:
    """The keys of texts from `format_entry`; raises ValueError as `parse_keys`."""
    entries = [json.loads(text) for text in texts]
    return parse_keys(json.dumps({"version": VERSION, "keys": entries}).encode())


def format_entry(key: ApiKey) -> str:
    """One key as a text."""
    return json.dumps(_entry(key))


def _key_1(entry: _Entry) -> ApiKey:
    return ApiKey(entry.name, entry.prefix, entry.sha256, entry.created)


def _key_2(entry: _Entry2) -> ApiKey:
    old = entry.old_secret
    return ApiKey(
        entry.name,
        entry.prefix,
        entry.sha256,
        entry.created,
        note=entry.note,
        expires=entry.expires,
        scopes=frozenset(entry.scopes),
        models=tuple(entry.models),
        limits=KeyLimits(**entry.limits.model_dump()),
        old_secret=None if old is None else OldSecret(old.sha256, old.until),
    )


def _entry(key: ApiKey) -> dict[str, object]:
    old = key.old_secret
    return {
        "name": key.name,
        "prefix": key.prefix,
        "sha256": key.sha256,
        "created": format_time(key.created),
        "note": key.note,
        "expires": None if key.expires is None else format_time(key.expires),
        "scopes": [scope.value for scope in KeyScope if scope in key.scopes],
        "models": list(key.models),
        "limits": asdict(key.limits),
        "old_secret": None
        if old is None
        else {"sha256": old.sha256, "until": format_time(old.until)},
    }
