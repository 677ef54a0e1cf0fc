"""Known fields that would change an answer and are not served: refused by name, never ignored."""

from collections.abc import Mapping
from typing import Any

from shepherd.server.errors import unsupported

_NEUTRAL: tuple[Any, ...] = (None, False, 0, "", [], {})
"""Values that leave an answer as it is."""

_FORMAT = "Use response_format, json_schema or grammar."
_CONTROLS: dict[str, str] = {
    "guided_json": _FORMAT,
    "guided_regex": _FORMAT,
    "guided_choice": _FORMAT,
    "guided_grammar": _FORMAT,
    "structured_outputs": _FORMAT,
    "min_tokens": "Use ignore_eos with max_tokens.",
    "stop_token_ids": "Use stop.",
    "bad_words": "Use logit_bias.",
    "allowed_token_ids": "Use logit_bias or grammar.",
    "include_stop_str_in_output": "A stop string is never part of the answer.",
    "use_beam_search": "There is no beam search.",
    "truncate_prompt_tokens": "Prompts are never shortened.",
    "prompt_logprobs": "Log probabilities of the prompt are not computed.",
    "post_sampling_probs": "Probabilities are the model's own, before the samplers.",
    "n_indent": "Indentation is not enforced.",
    "lora": "Adapters are chosen when the model is loaded.",
}
_LIMITS: dict[str, str] = {
    "t_max_predict_ms": "Use max_tokens.",
    "adaptive_target": "There is no adaptive sampling; use mirostat.",
}
"""Fields that a negative number turns off."""


def refuse_unsupported(fields: Mapping[str, Any], others: Mapping[str, str] | None = None) -> None:
    """Raise ApiError for a known field that is not served, of `others` too.

    A value that changes nothing is accepted.
    """
    for name, reason in {**_CONTROLS, **_LIMITS, **(others or {})}.items():
        value = fields.get(name)
        off = name in _LIMITS and isinstance(value, int | float) and value <= 0
        if not (off or value in _NEUTRAL):
            raise unsupported(name, f"{name} is not supported. {reason}")
