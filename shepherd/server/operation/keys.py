"""`/admin/keys`: lists, makes, changes, rotates and removes the keys of a server that runs."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends
from msgspec import ValidationError, convert, to_builtins
from pydantic import AwareDatetime, ConfigDict, Field

from shepherd.backends.tenant import TenantKind
from shepherd.messages import JsonObject
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyNameError, Keys, KeyStoreError
from shepherd.server.access.paths import KEYS_PATH
from shepherd.server.body import BodyReader, RequestModel
from shepherd.server.errors import ApiError, invalid
from shepherd.server.operation.admin import check_access
from shepherd.server.record import current_key
from shepherd.server.responses import JsonResponse

T = TypeVar("T")
logger = logging.getLogger(__name__)

_CHANGEABLE = frozenset({"note", "expires", "scopes", "models", "limits", "share", "kind"})
VISIBLE = _CHANGEABLE | {"name", "prefix", "created"}
"""The fields of a key that leave the server; the others are hashes."""

_MAX_GRACE = 365 * 86_400


class KeyBody(RequestModel):
    """What a key may do. A field that a key does not have is refused: it could be a restriction."""

    model_config = ConfigDict(extra="allow")

    note: str = ""
    """A remark of at most 200 characters."""
    expires: AwareDatetime | None = None
    """When it ends."""
    scopes: Sequence[KeyScope] = ()
    """What it opens."""
    models: Sequence[str] = ()
    """Models that it may use, with `*`; all models without any."""
    limits: dict[str, int | None] = Field(default_factory=dict[str, int | None])
    """Limits by their names, such as `requests_per_minute`; those that are left out are none."""
    share: float = 1.0
    """Its part of a busy model, beside keys with 1."""
    kind: TenantKind = TenantKind.AGENT
    """Who waits for its answers."""


class NewKeyBody(KeyBody):
    """The body of `POST /admin/keys`."""

    name: str
    """What it is called."""


class RotationBody(RequestModel):
    """The body of `POST /admin/keys/{name}/rotate`."""

    grace_seconds: Annotated[int, Field(ge=0, le=_MAX_GRACE)] = 0
    """How long the old secret stays valid."""


def keys_router(keys: Keys, bodies: BodyReader) -> APIRouter:
    """The routes for a key with the scope `admin`, or over the server's Unix socket."""
    router = APIRouter(dependencies=[Depends(check_access)])

    @router.get(KEYS_PATH)
    async def list_keys() -> JsonResponse:
        """All keys without their secrets; `own` is the name of the one that asks."""
        own, listed = current_key(), await _with(keys.keys)
        names = {"own": None if own is None else own.name}
        return JsonResponse({"keys": [_visible(key) for key in listed], **names})

    @router.post(KEYS_PATH)
    async def add_key(body: Annotated[NewKeyBody, bodies.of(NewKeyBody)]) -> JsonResponse:
        """Make a key; only this answer has its `secret`. A key without `scopes` has the usual ones.

        As on the command line: `chat`, `embed` and `tools`.
        """
        secret = await _with(lambda: keys.add(body.name, lambda key: _changed(key, body, keys)))
        logger.info("The key %s was made", body.name)
        return _once(body.name, secret)

    @router.post(f"{KEYS_PATH}/{{name}}")
    async def change_key(name: str, body: Annotated[KeyBody, bodies.of(KeyBody)]) -> JsonResponse:
        """Change what a key may do; what the body leaves out stays. It holds for the next request.

        `limits` are replaced as a whole.
        """
        await _with(lambda: keys.update(name, lambda key: _changed(key, body, keys)))
        logger.info("The key %s was changed", name)
        return JsonResponse({"name": name})

    @router.post(f"{KEYS_PATH}/{{name}}/rotate")
    async def rotate_key(
        name: str, body: Annotated[RotationBody, bodies.of(RotationBody)]
    ) -> JsonResponse:
        """Give a key a new secret; only this answer has it."""
        secret = await _with(lambda: keys.rotate(name, timedelta(seconds=body.grace_seconds)))
        logger.info("The key %s has a new secret", name)
        return _once(name, secret)

    @router.delete(f"{KEYS_PATH}/{{name}}")
    async def remove_key(name: str) -> JsonResponse:
        """Make a key invalid, also for its running requests."""
        await _with(lambda: keys.remove(name))
        logger.info("The key %s was removed", name)
        return JsonResponse({"name": name})

    return router


async def _with(work: Callable[[], T]) -> T:
    """The result of work with the keys, which may wait for a file or a database."""
    try:
        return await asyncio.to_thread(work)
    except KeyNameError as error:
        raise invalid("name", str(error)) from error
    except KeyStoreError as error:
        raise ApiError(503, str(error), "keys_unavailable") from error


def _changed(key: ApiKey, body: KeyBody, keys: Keys) -> ApiKey:
    """The key with the fields that were sent; raises ApiError for what a key can't have."""
    sent: dict[str, Any] = body.model_dump(mode="json", exclude_unset=True)
    if isinstance(body, NewKeyBody):
        del sent["name"]
    for name in sent.keys() - _CHANGEABLE:
        raise invalid(name, "can't be set")
    try:
        changed = convert({**to_builtins(key), **sent}, ApiKey)
    except ValidationError as error:
        raise invalid("key", str(error)) from error
    if "expires" in sent and keys.is_expired(changed):
        raise invalid("expires", "is in the past")
    return changed


def _visible(key: ApiKey) -> JsonObject:
    """A key as it leaves the server."""
    return {name: value for name, value in to_builtins(key).items() if name in VISIBLE}


def _once(name: str, secret: str) -> JsonResponse:
    """The answer with a new secret, which no cache may keep."""
    return JsonResponse({"name": name, "secret": secret}, 200, {"Cache-Control": "no-store"})
