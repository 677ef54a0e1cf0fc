"""A Gemini request as a `Session`."""

from collections.abc import Sequence

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject, ToolSpec
from shepherd.sampling import Sampling
from shepherd.server.errors import ApiError, invalid, unsupported
from shepherd.server.gemini.formats import output_format
from shepherd.server.gemini.messages import check_contents, conversation
from shepherd.server.gemini.requests import (
    FunctionCallingConfig,
    FunctionDeclaration,
    GenerationConfig,
    PromptFields,
    ThinkingConfig,
    Tool,
)
from shepherd.server.gemini.schema import json_schema
from shepherd.server.seal import Seal
from shepherd.server.wire.translation import effort_named
from shepherd.session import Session
from shepherd.structure import ToolChoice

_EMPTY: JsonObject = {"type": "object", "properties": {}}
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_SEEDS = 2**32


def session_from_request(
    request: PromptFields, model: ModelInfo, seal: Seal, *, thinking: bool
) -> Session:
    """The conversation of a request to `model`; `thinking` is the default.

    Raises ApiError for fields that would change the answer and are not supported.
    """
    _check_supported(request)
    check_contents(request.contents, model)
    config, instruction = request.generation, request.system_instruction
    declarations = [d for tool in request.tools for d in tool.function_declarations]
    requested, thoughts = wants_thinking(config), config.thinking_config
    return Session(
        system_message=instruction.text if instruction else "",
        messages=conversation(request.contents, seal),
        tools=[_spec(declaration) for declaration in _offered(request, declarations)],
        sampling=_sampling(config),
        thinking=thinking if requested is None else requested,
        thinking_budget=_thinking_budget(thoughts),
        thinking_effort=effort_named(thoughts and thoughts.thinking_level),
        tool_choice=_tool_choice(request, declarations),
        output_format=output_format(config),
    )


def wants_thinking(config: GenerationConfig) -> bool | None:
    """Whether a request asks for reasoning, None if it does not say."""
    thinking = config.thinking_config
    if thinking is None:
        return None
    if thinking.thinking_budget is not None:
        return thinking.thinking_budget != 0
    has_level = thinking.thinking_level not in (None, "", "THINKING_LEVEL_UNSPECIFIED")
    return True if has_level or thinking.include_thoughts else None


def _thinking_budget(thinking: ThinkingConfig | None) -> int | None:
    """The limit of reasoning in tokens; None without one, as -1 says."""
    budget = thinking.thinking_budget if thinking is not None else None
    return None if budget is None or budget < 0 else budget


def _check_supported(request: PromptFields) -> None:
    if request.cached_content:
        raise unsupported(
            "cachedContent", "cachedContent is not served; send the whole conversation."
        )
    if request.continuation_token:
        raise unsupported("continuationToken", "continuationToken is not served.")
    for index, tool in enumerate(request.tools):
        _check_tool(tool, f"tools.{index}")
    config = request.generation
    if set(config.response_modalities) - {"TEXT", "MODALITY_UNSPECIFIED"}:
        raise _only_text("responseModalities")
    if config.speech_config:
        raise _only_text("speechConfig")
    if config.image_config:
        raise _only_text("imageConfig")


def _only_text(field: str) -> ApiError:
    param = f"generationConfig.{field}"
    return unsupported(param, f"{param}: only text is served.")


def _check_tool(tool: Tool, where: str) -> None:
    for name, field in type(tool).model_fields.items():
        if name != "function_declarations" and getattr(tool, name) is not None:
            message = f"{where}.{field.alias} runs at Google only; this server offers functions."
            raise unsupported(f"{where}.{field.alias}", message)


def _spec(declaration: FunctionDeclaration) -> ToolSpec:
    schema = declaration.parameters_json_schema
    if schema is None and declaration.parameters:
        schema = json_schema(declaration.parameters)
    return ToolSpec(declaration.name, declaration.description or "", schema or _EMPTY)


def _calling(request: PromptFields) -> FunctionCallingConfig:
    """How functions are called; raises ApiError for a mode that does not exist."""
    config = request.tool_config.function_calling_config if request.tool_config else None
    config = config or FunctionCallingConfig()
    if config.mode in (None, "", "MODE_UNSPECIFIED"):
        return FunctionCallingConfig(
            mode="AUTO", allowed_function_names=config.allowed_function_names
        )
    if config.mode not in _MODES:
        raise _bad_choice("mode", f"must be one of {', '.join(_MODES)}")
    return config


def _offered(
    request: PromptFields, declarations: Sequence[FunctionDeclaration]
) -> list[FunctionDeclaration]:
    """The functions that the model sees; raises ApiError for a name that is not among them."""
    config = _calling(request)
    allowed = set(config.allowed_function_names)
    if config.mode == "NONE":
        return []
    if not allowed:
        return [*declarations]
    if config.mode == "AUTO":
        raise _bad_choice("allowedFunctionNames", "only with the mode ANY or VALIDATED")
    if missing := allowed - {declaration.name for declaration in declarations}:
        raise _bad_choice("allowedFunctionNames", f"there is no function {min(missing)!r}")
    return [declaration for declaration in declarations if declaration.name in allowed]


def _tool_choice(
    request: PromptFields, declarations: Sequence[FunctionDeclaration]
) -> ToolChoice | None:
    """The calls that the answer must be, None if the model decides; raises ApiError."""
    config = _calling(request)
    if config.mode != "ANY":
        return None
    if not declarations:
        raise _bad_choice("mode", "functions are needed with ANY")
    return ToolChoice()


def _bad_choice(field: str, reason: str) -> ApiError:
    return invalid(f"toolConfig.functionCallingConfig.{field}", reason)


def _sampling(config: GenerationConfig) -> Sampling:
    """The sampling parameters; raises ApiError where two do not fit together."""
    if config.logprobs is not None and not config.response_logprobs:
        raise invalid("generationConfig.logprobs", "responseLogprobs must be true with it")
    return Sampling(
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        penalty_present=config.presence_penalty,
        penalty_freq=config.frequency_penalty,
        seed=None if config.seed is None else config.seed % _SEEDS,
        stop=tuple(config.stop_sequences) or None,
        logprobs=(config.logprobs or 0) if config.response_logprobs else None,
    )
