"""Requests of the Gemini API: lenient, unknown fields are ignored."""

from typing import Annotated, Any, TypeAlias, cast

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from shepherd.messages import JsonObject
from shepherd.sampling import MAX_STOP_STRINGS, RANGES
from shepherd.server.gemini.contents import Contents, GeminiModel, SystemInstruction
from shepherd.server.wire.fields import MAX_TOOLS
from shepherd.server.wire.unsupported import check_fields


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _filled(value: object) -> object:
    """A list without empty strings; null is an empty one."""
    if value is None:
        return []
    if isinstance(value, list):
        return [item for item in cast(list[object], value) if item != ""]
    return value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


NUMBER = BeforeValidator(_no_boolean)
"""Comes behind a range, which would not take null behind it."""

Word: TypeAlias = Annotated[str | None, BeforeValidator(_upper)]


def _ranged(name: str, description: str) -> Any:
    low, high = RANGES[name]
    return Field(ge=low, le=high, description=description)


class ThinkingConfig(GeminiModel):
    """Whether the model reasons, and whether the answer shows it."""

    include_thoughts: bool | None = None
    thinking_budget: Annotated[int | None, Field(ge=-1), NUMBER] = None
    thinking_level: Word = None


class GenerationConfig(GeminiModel):
    """`generationConfig`: how the answer is generated; the settings hold for missing fields."""

    temperature: Annotated[
        float | None, _ranged("temperature", "Randomness; 0: the likeliest token."), NUMBER
    ] = None
    top_p: Annotated[
        float | None, _ranged("top_p", "Keep the likeliest tokens up to this probability."), NUMBER
    ] = None
    top_k: Annotated[
        int | None, _ranged("top_k", "Keep the K likeliest tokens; 0: all."), NUMBER
    ] = None
    presence_penalty: Annotated[
        float | None, _ranged("penalty_present", "Presence penalty; 0: off."), NUMBER
    ] = None
    frequency_penalty: Annotated[
        float | None, _ranged("penalty_freq", "Frequency penalty; 0: off."), NUMBER
    ] = None
    seed: Annotated[int | None, NUMBER] = None
    max_output_tokens: Annotated[int | None, Field(ge=1), NUMBER] = None
    stop_sequences: Annotated[
        list[str], Field(max_length=MAX_STOP_STRINGS), BeforeValidator(_filled)
    ] = Field(default_factory=list[str])
    candidate_count: Annotated[int | None, Field(ge=1), NUMBER] = None
    response_logprobs: bool | None = None
    logprobs: Annotated[
        int | None, _ranged("logprobs", "Tell so many of the likeliest tokens too."), NUMBER
    ] = None
    response_mime_type: str | None = None
    response_schema: JsonObject | None = None
    response_json_schema: Annotated[
        JsonObject | None,
        Field(
            validation_alias=AliasChoices(
                "responseJsonSchema", "response_json_schema", "_responseJsonSchema"
            )
        ),
    ] = None
    thinking_config: ThinkingConfig | None = None
    response_modalities: Annotated[list[Word], BeforeValidator(_filled)] = Field(
        default_factory=list[Word]
    )
    speech_config: Any = None
    image_config: Any = None

    @model_validator(mode="before")
    @classmethod
    def _served(cls, value: object) -> object:
        """Refuse controls of other APIs, which would be ignored."""
        return check_fields(cls, value)


class FunctionDeclaration(GeminiModel):
    """A function on offer; one of two fields has the schema of its arguments."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: JsonObject | None = None
    parameters_json_schema: JsonObject | None = None


class Tool(GeminiModel):
    """Functions on offer; tools that Google runs have other fields."""

    function_declarations: Annotated[
        list[FunctionDeclaration],
        Field(max_length=MAX_TOOLS, fail_fast=True),
        BeforeValidator(_filled),
    ] = Field(default_factory=list[FunctionDeclaration])
    google_search: Any = None
    google_search_retrieval: Any = None
    google_maps: Any = None
    code_execution: Any = None
    url_context: Any = None
    file_search: Any = None
    computer_use: Any = None
    mcp_servers: Any = None
    retrieval: Any = None
    enterprise_web_search: Any = None


class FunctionCallingConfig(GeminiModel):
    """Whether the model calls functions, and which."""

    mode: Word = None
    allowed_function_names: Annotated[list[str], BeforeValidator(_filled)] = Field(
        default_factory=list[str]
    )


class ToolConfig(GeminiModel):
    """`toolConfig`."""

    function_calling_config: FunctionCallingConfig | None = None


Tools: TypeAlias = Annotated[
    list[Tool], Field(max_length=MAX_TOOLS, fail_fast=True), BeforeValidator(_filled)
]


class PromptFields(GeminiModel):
    """The parts of a request that the prompt is made of."""

    contents: Annotated[
        Contents,
        Field(description="The conversation; images are `inlineData`, and files are refused."),
    ]
    system_instruction: Annotated[
        SystemInstruction, Field(description="Instructions to the model: a content of texts.")
    ] = None
    tools: Annotated[
        Tools,
        Field(
            description="`functionDeclarations`, with `parameters` or `parametersJsonSchema`. "
            "Tools that Google runs are refused."
        ),
    ] = Field(default_factory=list[Tool])
    tool_config: Annotated[
        ToolConfig | None,
        Field(
            description="`functionCallingConfig`: its mode `AUTO` and `VALIDATED` leave it to the "
            "model, `ANY` demands calls, `NONE` offers no functions."
        ),
    ] = None
    generation_config: Annotated[
        GenerationConfig | None,
        Field(
            description="`temperature`, `topP`, `topK`, `maxOutputTokens`, `stopSequences`, "
            "`candidateCount`, `seed`, `presencePenalty`, `frequencyPenalty`, `responseMimeType`, "
            "`responseSchema`, `responseJsonSchema`, `thinkingConfig`, `responseLogprobs`, "
            "`logprobs`."
        ),
    ] = None
    cached_content: Annotated[
        Any, Field(description="Not served; the server finds equal beginnings by itself.")
    ] = None
    continuation_token: Annotated[Any, Field(description="Not served.")] = None

    @model_validator(mode="before")
    @classmethod
    def _served(cls, value: object) -> object:
        """Refuse controls of other APIs, which would be ignored."""
        return check_fields(cls, value)

    @property
    def generation(self) -> GenerationConfig:
        """The generation config, an empty one if the request has none."""
        return self.generation_config or GenerationConfig()


class GenerateRequest(PromptFields):
    """The body of `:generateContent` and `:streamGenerateContent`."""


class CountRequest(GeminiModel):
    """The body of `:countTokens`: the parts of a prompt, or a whole request."""

    contents: Annotated[
        Contents | None, Field(description="The conversation, without a whole request.")
    ] = None
    generate_content_request: Annotated[
        GenerateRequest | None, Field(description="A whole request, in place of the contents.")
    ] = None
    system_instruction: Annotated[
        SystemInstruction, Field(description="Instructions beside the contents.")
    ] = None
    tools: Annotated[Tools, Field(description="Functions on offer beside the contents.")] = Field(
        default_factory=list[Tool]
    )
