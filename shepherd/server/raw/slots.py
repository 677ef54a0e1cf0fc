"""The slots of llama.cpp's server: whether they work, and what clients save of them."""

import time
from typing import Annotated

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, invalid
from shepherd.server.generation import NO_TOKENS
from shepherd.server.raw.answers import LlamaCompletion
from shepherd.server.raw.model_routes import text_model
from shepherd.server.raw.requests import LlamaRequest
from shepherd.server.responses import JsonResponse
from shepherd.server.serving import Exchange, Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.session import RawPrompt, Session

SLOTS_PATH = "/slots"


class SlotBody(RequestModel):
    """The body of `POST /slots/ID`."""

    filename: str
    """Any name; a key finds only its own."""


def slots_router(context: ServerContext) -> APIRouter:
    """The routes of slots."""
    router = APIRouter()

    @router.get(SLOTS_PATH)
    async def list_slots(request: Request) -> Response:
        """For each request that may run at once, whether one runs there."""
        async with text_model(context, request.query_params.get("model")) as text:
            size, busy = text.file.context_size, [*text.slots]
        if "fail_on_no_slot" in request.query_params and all(busy):
            raise ApiError(503, "No slot is available.", "server_busy")
        slots = [
            {"id": index, "n_ctx": size, "speculative": False, "is_processing": works}
            for index, works in enumerate(busy)
        ]
        return JsonResponse(slots)

    @router.post(f"{SLOTS_PATH}/{{id}}")
    async def move_slot(
        request: Request, id: int, serving: Annotated[Serving, serves(context)]
    ) -> Response:
        """Save the tokens of a slot's last conversation, read them again, or forget them.

        `?action=` is `save` or `restore`, with any name in `filename` of the body, or `erase`. The
        states of the tokens are in the cache.
        """
        started, query, slots = time.perf_counter(), request.query_params, context.slots
        done: JsonObject = {"id_slot": id}
        match action := query.get("action"):
            case "erase":
                return JsonResponse(done | {"n_erased": slots.erase(id)})
            case "save" | "restore":
                name = (await context.bodies.read(request, SlotBody)).filename
            case _:
                raise invalid("action", "must be save, restore or erase")
        done["filename"] = name
        if action == "save":
            done["n_saved"], done["n_written"] = slots.save(id, name)
        else:
            tokens = slots.read(name)
            model = await serving.lease(query.get("model"))
            session = Session(raw_prompt=RawPrompt(tuple(tokens)))
            answer = LlamaCompletion(LlamaRequest(), model.info)
            await serving.whole(model, Exchange(session, answer, max_tokens=NO_TOKENS, slot=id))
            done["n_restored"], done["n_read"] = len(tokens), len(tokens) * tokens.itemsize
        spent = round(1000 * (time.perf_counter() - started), 3)
        return JsonResponse(done | {"timings": {f"{action}_ms": spent}})

    return router
