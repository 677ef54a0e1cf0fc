"""`GET /openapi.json`: all endpoints of a server, described from its routes.

FastAPI describes paths and parameters. What it does not know is added: the bodies that `JsonBody`
reads, the keys that `Guard` wants, streams, and the errors of each API.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, cast

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import RouteContext, iter_route_contexts
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import BeforeValidatorFunctionSchema

from shepherd.messages import JsonObject
from shepherd.server import responses, settings
from shepherd.server.access.paths import OPEN_PATHS
from shepherd.server.api import ErrorShapes
from shepherd.server.body import JsonBody
from shepherd.server.errors import ApiError

OPENAPI_PATH = "/openapi.json"
_SCHEMAS = "#/components/schemas/{model}"
_KEYS: JsonObject = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "anthropic": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "google": {"type": "apiKey", "in": "header", "name": "x-goog-api-key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
}


class _Inputs(GenerateJsonSchema):
    """Schemas of what a field takes: a validator before it may take other forms too."""

    def function_before_schema(self, schema: BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Anything else too, unless the validator names what it takes, or checks a whole body."""
        usual = super().function_before_schema(schema)
        is_known = "json_schema_input_schema" in schema or schema["schema"]["type"] == "model"
        return usual if is_known else {"anyOf": [usual, {}]}

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """A part of a schema; a field's description comes from a docstring, which has lines."""
        part = super().generate_inner(schema)
        if schema["type"] == "model-field" and "description" in part:
            part["description"] = " ".join(part["description"].split())
        return part


def add_openapi(
    api: FastAPI, context: settings.ServerContext, errors: ErrorShapes, *, needs_keys: bool
) -> None:
    """Serve the description of all routes of `api`."""

    @cache
    def document() -> JsonObject:
        return describe(api, errors, needs_keys=needs_keys)

    @api.get(OPENAPI_PATH)
    async def read_openapi() -> responses.JsonResponse:
        """This description of all endpoints, in the format of OpenAPI."""
        return responses.JsonResponse(await context.bodies.run(document))


def describe(api: FastAPI, errors: ErrorShapes, *, needs_keys: bool) -> JsonObject:
    """The description of an application."""
    document = get_openapi(title=api.title, version=api.version, routes=api.routes)
    bodies = list(body_models(api))
    inputs = {(model, "validation") for _, _, model in bodies}  # of pydantic's two kinds of schema
    references, definitions = models_json_schema(
        cast(Any, sorted(inputs, key=lambda pair: pair[0].__name__)),  # a stable order
        ref_template=_SCHEMAS,
        schema_generator=_Inputs,
    )
    components: JsonObject = document.setdefault("components", {})
    components["schemas"] = definitions.get("$defs", {})
    paths: JsonObject = document["paths"]
    for path, method, model in bodies:
        if path in paths:  # a route may be left out of the description
            schema = references[model, "validation"]
            content = {"application/json": {"schema": schema}}
            paths[path][method]["requestBody"] = {"required": True, "content": content}
            # a field says it, or the path: Google's clients ask for `:streamGenerateContent`
            if "stream" in model.model_fields or "stream" in path:
                _add_stream(paths[path][method], path)
    for path, operations in paths.items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's own, which is never sent
            operation["responses"]["default"] = _error(errors, path)
            if path in OPEN_PATHS:
                operation["security"] = []
    components["securitySchemes"] = _KEYS
    document["security"] = [{name: []} for name in _KEYS] if needs_keys else [{}]
    return document


def body_models(api: FastAPI) -> Iterator[tuple[str, str, type[BaseModel]]]:
    """The path and the method of each route that takes a body, with the model of the body."""
    for route in iter_route_contexts(api.routes):
        for model in _models(route):
            for method in route.methods or ():
                yield route.path_format or "", method.lower(), model


def _models(route: RouteContext) -> Iterator[type[BaseModel]]:
    """The models of the bodies that a route reads: mostly one, or none."""
    dependant: Dependant | None = getattr(route, "dependant", None)
    for part in () if dependant is None else dependant.dependencies:
        if isinstance(part.call, JsonBody):
            yield part.call.model


def _add_stream(operation: JsonObject, path: str) -> None:
    """An answer may come in pieces."""
    media = responses.JSON_LINES if path.startswith("/api/") else responses.SERVER_SENT_EVENTS
    operation["responses"]["200"]["content"][media.media_type] = {"schema": {"type": "string"}}


def _error(errors: ErrorShapes, path: str) -> JsonObject:
    """The errors of a path, in the shape of its API."""
    sample = errors.of(path).reply(ApiError(400, "", "invalid_value", "")).body
    content = {"application/json": {"schema": _schema(sample)}}
    return {"description": "An error.", "content": content}


def _schema(sample: object) -> JsonObject:
    """The schema of values like this one."""
    match sample:
        case dict():
            fields = cast(JsonObject, sample)
            return {"type": "object", "properties": {k: _schema(v) for k, v in fields.items()}}
        case list():
            return {"type": "array"}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case _:  # a text, which errors of another kind may lack
            return {"type": ["string", "null"]}
