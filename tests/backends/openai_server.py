"""A small OpenAI-compatible server, played over real HTTP."""

from tests.backends.api.upstream import Received, Reply, Upstream


def openai_server(*answers: str, model: str = "small", context: int = 4096) -> Upstream:
    """Lists `model` and says `answers` in turn, the last one again and again."""
    waiting = list(answers)

    def reply(request: Received) -> Reply:
        if request.path == "/v1/models":
            return Reply({"object": "list", "data": [{"id": model, "max_model_len": context}]})
        if request.path != "/v1/chat/completions":
            return Reply({"error": {"message": "not found"}}, status=404)
        text = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return Reply.sse([chunk(text, None), chunk("", "stop")])

    return Upstream(reply)


def chunk(text: str, finish: str | None) -> dict[str, object]:
    delta = {"role": "assistant", "content": text}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
