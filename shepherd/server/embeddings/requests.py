"""Requests for vectors and rankings: lenient, unknown fields are ignored."""

from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, model_validator

from shepherd.server.body import RequestModel
from shepherd.server.wire.embedding import MAX_INPUTS
from shepherd.server.wire.fields import Integer, ModelName
from shepherd.server.wire.unsupported import refuse_unsupported

_INSTRUCTION = "Write the instruction into the texts, as the model's card says."
_NUMBERS = "Vectors are numbers of 32 bits."
_UNSUPPORTED = {
    "input_type": _INSTRUCTION,
    "task": _INSTRUCTION,
    "instruction": _INSTRUCTION,
    "late_chunking": "Each text is read on its own.",
    "truncation": "Texts are never shortened.",
    "output_dtype": _NUMBERS,
    "embedding_type": _NUMBERS,
    "embedding_types": _NUMBERS,
}
_RANK_UNSUPPORTED = {
    "rank_fields": "Send each document as one text.",
    "max_chunks_per_doc": "Documents are never divided.",
    "max_tokens_per_doc": "Documents are never shortened.",
    "truncate": "Documents are never shortened.",
    "truncation": "Documents are never shortened.",
    "raw_scores": "Scores are always as the model gives them.",
    "instruction": _INSTRUCTION,
}
EUCLIDEAN = 2
_MAX_DIMENSIONS = 65_536


def _document(value: object) -> object:
    """The text of a document, which may be an object."""
    return cast(dict[str, object], value).get("text") if isinstance(value, dict) else value


class EmbeddingBody(RequestModel):
    """The body of `POST /v1/embeddings` and of the paths like it."""

    model: ModelName = None
    input: Annotated[
        Any,
        Field(
            description="A text, a list of tokens, or a list of at most 2,048 such inputs. Each "
            "gives a vector."
        ),
    ] = None
    content: Annotated[
        Any, Field(description="llama.cpp's name for `input`; the answer is in its shape.")
    ] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None,
        Field(description="How vectors are written; base64 has float32 in little endian."),
    ] = None
    dimensions: Annotated[
        Integer,
        Field(
            ge=1,
            le=_MAX_DIMENSIONS,
            description="Only so many numbers of each vector, scaled to length 1 again.",
        ),
    ] = None
    embd_normalize: Annotated[
        Integer,
        Field(description="llama.cpp's; only 2 (length 1) is served."),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: object) -> object:
        if isinstance(value, dict):
            fields = cast(dict[str, Any], value)
            refuse_unsupported(fields, _UNSUPPORTED)
            if fields.get("embd_normalize") not in (None, EUCLIDEAN):
                raise ValueError("embd_normalize must be 2: vectors always have length 1")
        return cast(object, value)


class RerankBody(RequestModel):
    """The body of `POST /v1/rerank`."""

    model: ModelName = None
    query: Annotated[str, Field(description="The text that documents are compared with.")]
    documents: Annotated[
        list[Annotated[str, BeforeValidator(_document)]] | None,
        Field(
            min_length=1,
            max_length=MAX_INPUTS,
            fail_fast=True,
            description="Texts, or objects with a `text`.",
        ),
    ] = None
    texts: Annotated[
        list[str] | None,
        Field(
            min_length=1,
            max_length=MAX_INPUTS,
            fail_fast=True,
            description="The documents in the format of Hugging Face's TEI; so is the answer then.",
        ),
    ] = None
    top_n: Annotated[
        Integer,
        Field(ge=1, description="Only so many results; all without it."),
    ] = None
    return_documents: Annotated[
        bool | None, Field(description="Each result has its document too.")
    ] = None
    return_text: Annotated[
        bool | None, Field(description="With `texts`: each result has its text too.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, value: object) -> object:
        if isinstance(value, dict):
            refuse_unsupported(cast(dict[str, Any], value), _RANK_UNSUPPORTED)
        return cast(object, value)
