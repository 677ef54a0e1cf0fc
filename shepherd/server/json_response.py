"""Responses in JSON."""

from typing import Any

from starlette.responses import JSONResponse

from shepherd.json_text import to_json


class JsonResponse(JSONResponse):
    """A response with a body of `to_json`."""

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()
