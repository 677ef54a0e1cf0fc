"""Tokens and facts of the loaded model: llama.cpp's `/tokenize`, `/props` and others."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, cast

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from shepherd import errors, messages
from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.text_model import TextModel
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid, unsupported
from shepherd.server.models import DEFAULT, ModelState, find_model
from shepherd.server.raw.answers import generation_settings
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.version import __version__

TOKENIZE_PATH = "/tokenize"
DETOKENIZE_PATH = "/detokenize"
PROPS_PATH = "/props"
_MAX_BYTES = 1_000_000
"""Those of a text for its tokens; a longer one would take seconds."""


class TokenizeBody(RequestModel):
    """The body of `POST /tokenize`."""

    model: str | None = None
    content: Any = ""
    """A text, or a list of texts and tokens."""
    add_special: bool | None = None
    """Begin with the model's token for that."""
    parse_special: bool | None = None
    """false: texts of control tokens are plain."""
    with_pieces: bool | None = None
    """Tell the text of each token."""


class DetokenizeBody(RequestModel):
    """The body of `POST /detokenize`."""

    model: str | None = None
    tokens: list[int] = Field(default_factory=list[int])
    """The numbers of tokens."""


def model_router(context: ServerContext) -> APIRouter:
    """The routes for tokens and facts."""
    router = APIRouter()

    @router.post(TOKENIZE_PATH)
    async def tokenize(body: Annotated[TokenizeBody, context.bodies.of(TokenizeBody)]) -> Response:
        """The tokens of a text, with `with_pieces` each with its own text."""
        async with text_model(context, body.model) as text:
            with _reported_at("content"):
                tokens = await text.tokenize(
                    _parts(body.content),
                    special=body.parse_special is not False,
                    begins=bool(body.add_special),
                )
            if not body.with_pieces:
                return JsonResponse({"tokens": tokens})
            pieces = await text.pieces(tokens)
        with_pieces = [
            {"id": token, "piece": _text_or_bytes(piece)}
            for token, piece in zip(tokens, pieces, strict=True)
        ]
        return JsonResponse({"tokens": with_pieces})

    @router.post(DETOKENIZE_PATH)
    async def detokenize(
        body: Annotated[DetokenizeBody, context.bodies.of(DetokenizeBody)],
    ) -> Response:
        """The text of tokens."""
        async with text_model(context, body.model) as text:
            with _reported_at("tokens"):
                pieces = await text.pieces(body.tokens)
        return JsonResponse({"content": b"".join(pieces).decode("utf-8", "replace")})

    @router.get(PROPS_PATH)
    async def props(request: Request) -> Response:
        """The model: its file, template, context, and default sampling.

        It is no use of the model: `is_sleeping` says that the default model has left memory.
        """
        name = request.query_params.get("model")
        served = await find_model(name or DEFAULT, context.models)
        if served is not None and served.info.text_model is not None:
            sleeping = served.state is ModelState.UNLOADED
            return JsonResponse(_props(served.info, served.info.text_model, sleeping=sleeping))
        # what another model tells is known once it is loaded
        async with context.models.lease(name) as backend:
            return JsonResponse(_props(backend.info, _text_of(backend), sleeping=False))

    return router


@asynccontextmanager
async def text_model(context: ServerContext, name: str | None) -> AsyncGenerator[TextModel]:
    """The text side of a model; raises ApiError for one that does not run in this process."""
    async with context.models.lease(name) as backend:
        yield _text_of(backend)


def _text_of(backend: Backend) -> TextModel:
    """The text side of a backend; raises ApiError for one of elsewhere."""
    text = backend.info.text_model
    if text is None:
        message = f"{backend.info.id} does not run in this process: its tokens are not known."
        raise unsupported("model", message)
    return text


@contextmanager
def _reported_at(param: str) -> Generator[None]:
    """Report a wrong token with the name of the field that it is in."""
    try:
        yield
    except errors.InvalidRequestError as error:
        raise invalid(param, str(error)) from error


def _parts(content: object) -> list[str | int]:
    """A text or a list of texts and tokens as a list; raises ApiError."""
    items = cast(list[object], content) if isinstance(content, list) else [content]
    parts: list[str | int] = []
    for item in items:
        # Python counts true and false as numbers
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise invalid("content", "must be a text, or a list of texts and tokens")
        parts.append(item)
    texts = [part for part in parts if isinstance(part, str)]
    characters = sum(map(len, texts))  # a character has a byte or more
    if characters > _MAX_BYTES or sum(len(t.encode(errors="replace")) for t in texts) > _MAX_BYTES:
        raise invalid("content", f"must be at most {_MAX_BYTES:,} bytes; send it in parts")
    return parts


def _text_or_bytes(piece: bytes) -> str | list[int]:
    """The text of a token; its bytes where they are a part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _props(info: ModelInfo, text: TextModel, *, sleeping: bool) -> messages.JsonObject:
    """What llama.cpp's server tells of its model; fields that mean nothing here are empty."""
    file = text.file
    return {
        "default_generation_settings": {
            "n_ctx": file.context_size,
            "params": generation_settings(file.sampling),
        },
        "total_slots": len(text.slots),
        "model_alias": file.name.removesuffix(".gguf"),
        "model_path": file.name,
        "chat_template": file.template,
        "chat_template_caps": {},
        "bos_token": file.bos,
        "eos_token": file.eos,
        "modalities": {"vision": bool(info.vision), "audio": False},
        "build_info": f"shepherd-{__version__}",
        "is_sleeping": sleeping,
    }
