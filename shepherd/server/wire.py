"""JSON as it goes out: compact, valid UTF-8, one line whoever splits it."""

import json
from typing import Any

from starlette.responses import JSONResponse

_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def to_json(data: object) -> str:
    """The JSON text; half a surrogate pair, which a model can write, becomes a question mark.

    Unicode's line breaks are escaped: readers of event streams split at them.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace").decode().translate(_LINE_BREAKS)


class JsonResponse(JSONResponse):
    """A response with a body of `to_json`."""

    def render(self, content: Any) -> bytes:
        return to_json(content).encode()
