"""Which scopes a path needs; a path that is not in the tables needs `admin`."""

from collections.abc import Iterable, Iterator, Mapping

from shepherd.server.access.key import KeyScope
from shepherd.server.errors import NOT_SERVED

ADMIN_PREFIX = "/admin"
"""The paths below it steer the server; it is itself a page without data."""

KEYS_PATH = f"{ADMIN_PREFIX}/keys"

OPEN_PATHS = frozenset({"/health", "/ready", ADMIN_PREFIX})
"""These need no key."""

METRICS_PATH = "/metrics"
"""It needs `admin`, unless a setting opens it."""

QUEUE_PATH = "/queue"

_ANY_KEY = frozenset[KeyScope]()
_CHAT = frozenset({KeyScope.CHAT})
_EMBED = frozenset({KeyScope.EMBED})
_TOOLS = frozenset({KeyScope.TOOLS})
_ADMIN = frozenset({KeyScope.ADMIN})
_AGENT = frozenset({KeyScope.CHAT, KeyScope.TOOLS})
"""A shared session runs tools for the client."""

MODEL_LISTS = ("/v1/models", "/models", "/v1beta/models", "/api/tags", "/api/ps")

_READ_PATHS = (
    *MODEL_LISTS,
    "/api/version",
    "/openapi.json",
    "/stats",
    "/props",
    "/slots",
    "/v1/usage",
)
"""Lists and states: any key may `GET` them, and all paths below them."""

_PATHS: dict[str, frozenset[KeyScope]] = {
    "/v1/chat": _CHAT,
    "/chat": _CHAT,
    "/v1/responses": _CHAT,
    "/v1/messages": _CHAT,
    "/v1/completions": _CHAT,
    "/completions": _CHAT,
    "/completion": _CHAT,
    "/infill": _CHAT,
    "/tokenize": _ANY_KEY,
    "/detokenize": _ANY_KEY,
    "/apply-template": _CHAT,
    "/slots": _CHAT,
    "/api/chat": _CHAT,
    "/api/generate": _CHAT,
    "/api/show": _ANY_KEY,
    "/v1/embeddings": _EMBED,
    "/embeddings": _EMBED,
    "/embedding": _EMBED,
    "/v1/rerank": _EMBED,
    "/v1/reranking": _EMBED,
    "/rerank": _EMBED,
    "/reranking": _EMBED,
    "/api/embed": _EMBED,
    "/api/embeddings": _EMBED,
    "/v1/tools": _TOOLS,
    "/tools": _TOOLS,
    "/request": _AGENT,
    "/updates": _AGENT,
    "/command": _AGENT,
    "/session": _AGENT,
    "/sessions": _AGENT,
    "/context": _AGENT,
    "/clear": _AGENT,
    METRICS_PATH: _ADMIN,
    QUEUE_PATH: _ADMIN,
    ADMIN_PREFIX: _ADMIN,
    "/approvals": frozenset({KeyScope.APPROVE}),
}
"""For all methods, with all paths below them."""

_MODEL_PATHS = ("/v1/models/", "/v1beta/models/")
_MODEL_METHODS: Mapping[str, frozenset[KeyScope]] = {
    "generateContent": _CHAT,
    "streamGenerateContent": _CHAT,
    "countTokens": _CHAT,
    "embedContent": _EMBED,
    "batchEmbedContents": _EMBED,
}
"""Google's: the method stands behind the name of the model."""


class PathScopes:
    """The scopes that each path needs.

    `plugin_paths` are the templates of plugins' routes, which need `tools`. Those above paths of
    the server need `admin`, because they could match others too.
    """

    def __init__(self, plugin_paths: Iterable[str] = ()) -> None:
        # `/notes/{id}` is `/notes` here, which stands for all paths below it
        fixed = {template.partition("{")[0].rstrip("/") for template in plugin_paths}
        # one above a path of ours could match that too, as `/v1/{path}`; it needs `admin`
        above_ours = {above for path in (*_PATHS, *_READ_PATHS) for above in _and_above(path)}
        # one below a path of ours needs what that needs
        below_none = {p for p in fixed - above_ours if _PATHS.keys().isdisjoint(_and_above(p))}
        # what is not served says so to any key, unless a plugin's route may match it
        refused = {p for p in NOT_SERVED if fixed.isdisjoint((*_and_above(p), ""))}
        self._paths = dict.fromkeys(refused, _ANY_KEY) | dict.fromkeys(below_none, _TOOLS) | _PATHS

    def of(self, method: str, path: str) -> frozenset[KeyScope]:
        """All of these are needed; an unknown path needs `admin`."""
        if method == "GET":
            if path == "/":
                return _ANY_KEY
            if any(above in _READ_PATHS for above in _and_above(path)):
                return _ANY_KEY
        elif path.startswith(_MODEL_PATHS):
            return _MODEL_METHODS.get(path.rpartition(":")[2], _ADMIN)
        scopes = (self._paths[above] for above in _and_above(path) if above in self._paths)
        return next(scopes, _ADMIN)  # the longest known path decides


def _and_above(path: str) -> Iterator[str]:
    """The path and those above it, the longest first: `/v1/chat`, `/v1`."""
    while path:
        yield path
        path = path.rpartition("/")[0]
