"""An Ollama whose models can be managed, over real HTTP, as its own types describe it."""

from dataclasses import dataclass, field

from ollama import ListResponse, ProcessResponse, ProgressResponse, ShowResponse

from shepherd.messages import JsonObject
from tests.backends.api.upstream import Received, Reply

DETAILS = {"family": "qwen3", "parameter_size": "8.2B", "quantization_level": "Q4_K_M"}
TAGS: JsonObject = {
    "models": [
        {"name": "qwen3:8b", "model": "qwen3:8b", "size": 5_200_000_000, "details": DETAILS},
        {"name": "big:cloud", "model": "big:cloud", "size": 300, "remote_host": "https://o.com"},
        {"name": "llama3:latest", "model": "llama3:latest", "size": 4_700_000},
    ]
}
SHOWN: JsonObject = {
    "template": "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>{{ end }}",
    "parameters": 'num_ctx             8192\nstop                "<|im_end|>"',
    "details": DETAILS,
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
    "capabilities": ["completion", "tools", "thinking"],
}
LAYER = {"status": "pulling aa", "digest": "sha256:aa", "total": 200_000_000}
STEPS: list[JsonObject] = [
    {"status": "pulling manifest"},
    LAYER,
    LAYER | {"completed": 150_000_000},
    LAYER | {"completed": 200_000_000},
    {"status": "pulling bb", "digest": "sha256:bb", "total": 20, "completed": 20},
    {"status": "verifying sha256 digest"},
    {"status": "success"},
]
NO_MODEL: JsonObject = {"error": "model 'x' not found"}


@dataclass
class Ollama:
    """Answers as a server does that has the models of `TAGS`, of which `loaded` are in memory."""

    tags: JsonObject = field(default_factory=lambda: TAGS)
    loaded: list[str] = field(default_factory=lambda: ["qwen3:8b"])
    pulls: list[Reply] = field(default_factory=list[Reply])

    def __call__(self, request: Received) -> Reply:
        if request.method == "GET":
            return Reply(self._listed(request.path))
        asked = request.json
        if request.path == "/api/pull":
            return self.pulls.pop(0) if self.pulls else Reply.ndjson(checked(STEPS))
        if asked["model"] not in [item["name"] for item in self.tags["models"]]:
            return Reply(NO_MODEL, status=404)
        if request.path == "/api/show":
            ShowResponse.model_validate(SHOWN)
            return Reply(SHOWN)
        assert (request.path, asked["keep_alive"]) == ("/api/generate", 0)
        self.loaded.remove(asked["model"])
        return Reply({"model": asked["model"], "done": True, "done_reason": "unload"})

    def _listed(self, path: str) -> JsonObject:
        if path == "/api/tags":
            ListResponse.model_validate(self.tags)
            return self.tags
        assert path == "/api/ps"
        running: JsonObject = {"models": [{"name": name, "model": name} for name in self.loaded]}
        ProcessResponse.model_validate(running)
        return running


def checked(steps: list[JsonObject]) -> list[JsonObject]:
    """The steps, which Ollama's own type takes."""
    for step in steps:
        ProgressResponse.model_validate(step)
    return steps
