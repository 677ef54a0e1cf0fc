"""Why Gemini ended an answer, in our words."""

from shepherd.backends.api.wire import StopDelta
from shepherd.events import FinishReason

_FILTERED = {
    "SAFETY": "its safety filter",
    "RECITATION": "it would have recited a source",
    "LANGUAGE": "the language is not supported",
    "BLOCKLIST": "a forbidden term",
    "PROHIBITED_CONTENT": "prohibited content",
    "SPII": "sensitive personal information",
    "JAILBREAK": "it was taken for an attempt to break the rules",
    "MODEL_ARMOR": "Model Armor",
    "ESCALATION": "an escalation rule",
    "PUP_LIMITED_DISABLED": "the account is limited; see Google's Prohibited Use Policy",
}
_FAILED = {
    "MALFORMED_FUNCTION_CALL": "made a call that can't be read; ask again",
    "UNEXPECTED_TOOL_CALL": "called a tool that is not on offer; ask again",
    "TOO_MANY_TOOL_CALLS": "made too many calls in one answer; ask again",
    "MISSING_THOUGHT_SIGNATURE": "misses a thought signature in the conversation; clear it",
    "MALFORMED_RESPONSE": "gave an answer that can't be read; ask again",
}


def finish(reason: str, message: str, *, calls: bool) -> StopDelta:
    """The end that `finishReason` means; `message` is the API's own, "" if it gave none."""
    if reason == "MAX_TOKENS":
        return StopDelta(FinishReason.LENGTH)
    if reason in ("STOP", "FINISH_REASON_UNSPECIFIED"):
        return StopDelta(FinishReason.TOOL_CALLS if calls else FinishReason.STOP)
    if reason in _FAILED:
        note = f"Gemini {_FAILED[reason]}"
    elif reason in _FILTERED:
        note = f"Gemini stopped its answer: {_FILTERED[reason]}"
    else:
        note = f"Gemini stopped its answer: {reason}"
    return StopDelta(FinishReason.STOP, _with(note, message))


def blocked_prompt(reason: str, message: str) -> StopDelta:
    """The end of an answer that was refused before it began."""
    why = _FILTERED.get(reason, reason)
    return StopDelta(FinishReason.STOP, _with(f"Gemini refused to answer: {why}", message))


def _with(note: str, message: str) -> str:
    return f"{note} ({message})" if message else note
