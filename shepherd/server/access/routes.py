"""`GET /v1/usage`: what was used with the keys."""

import asyncio
from dataclasses import asdict

from fastapi import APIRouter
from starlette.requests import Request

from shepherd.server.access.key import KeyScope
from shepherd.server.access.usage import UsageStore
from shepherd.server.errors import ApiError
from shepherd.server.record import current_key
from shepherd.server.responses import JsonResponse

USAGE_PATH = "/v1/usage"
DEFAULT_DAYS, MAX_DAYS = 30, 36_500


def usage_router(store: UsageStore) -> APIRouter:
    """The usage route."""
    router = APIRouter()

    @router.get(USAGE_PATH)
    async def read_usage(request: Request) -> JsonResponse:
        """Requests and tokens per day (UTC), key and model. Only with keys.

        `?days=` limits the days (30), and `?key=` the keys. Only the scope `admin` sees those of
        other keys.
        """
        name = _visible(request.query_params.get("key"))
        days = _days(request.query_params.get("days", str(DEFAULT_DAYS)))
        rows = await asyncio.wrap_future(store.read(days, name))
        return JsonResponse({"object": "list", "data": [asdict(row) for row in rows]})

    return router


def _visible(name: str | None) -> str | None:
    """The name of the key whose usage is shown, None for all; raises ApiError."""
    key = current_key()
    if key is None or KeyScope.ADMIN in key.scopes:
        return name
    if name not in (None, key.name):
        message = "Only a key with the scope admin sees the usage of other keys."
        raise ApiError(403, message, "insufficient_scope", "key")
    return key.name


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_DAYS and len(text) < 9):
        message = f"days must be a whole number from 1 to {MAX_DAYS}"
        raise ApiError(400, message, "invalid_value", "days")
    return int(text)
