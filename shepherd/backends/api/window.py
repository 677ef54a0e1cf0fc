"""The size of a model's context, and its source."""

from http import HTTPStatus

from msgspec import Struct, structs

from shepherd.backends.api.adapter import Adapter, ModelEntry, ModelTraits
from shepherd.backends.api.http.client import ApiClient
from shepherd.backends.api.http.failures import Failure
from shepherd.errors import AccessError, BackendError, InvalidRequestError

MIN_CONTEXT = 256
"""Tokens. A smaller number does not mean a context."""

MAX_NAMES = 20


class Window(Struct, frozen=True):
    """Context and longest answer in tokens, 0 = unknown; `source` is for the user."""

    size: int = 0
    output_limit: int = 0
    source: str = ""

    def corrected(self, limit: int | None) -> "Window":
        """The window after the provider has refused a prompt with `limit` as its size."""
        if limit is None or limit < MIN_CONTEXT or 0 < self.size <= limit:
            return self  # a larger number says nothing: our own size is only a lower bound of it
        return Window(limit, self.output_limit, "an answer of the provider: the context was full")


async def list_models(client: ApiClient, adapter: Adapter) -> list[ModelEntry]:
    """The models that the provider offers; raises BackendError."""
    return adapter.parse_models(await client.fetch(adapter.models()))


def lacks_list(error: BackendError) -> bool:
    """Whether a failure means that there is no list of models, or none for this key."""
    failure = error.__cause__
    refusal = failure.refusal if isinstance(failure, Failure) else None
    forbidden = refusal is not None and refusal.status == HTTPStatus.FORBIDDEN
    return isinstance(error, InvalidRequestError) or forbidden


async def ask_window(
    client: ApiClient, adapter: Adapter, traits: ModelTraits, setting: int, traits_source: str
) -> tuple[ModelTraits, Window]:
    """The model and its window: `setting`, else the server's value, else the model's traits.

    A server without a list of models, or with one that this key can't read, is assumed to have the
    model of `traits`. Raises AccessError, UnreachableError and, if the model must be chosen,
    InvalidRequestError.
    """
    try:
        models = await list_models(client, adapter)
    except (InvalidRequestError, AccessError) as error:
        if not lacks_list(error):
            raise
        models = []
    default = models[0].id if models and adapter.lists_default_first else ""
    model = traits.id or default or _only(models, client)
    listed = next((entry for entry in models if entry.id == model), ModelEntry(model))
    needs_probe = not setting or adapter.tells_abilities
    details = await _probed(client, adapter, listed) if needs_probe else listed
    served_traits = structs.replace(
        traits,
        id=model,
        price=details.price or listed.price,
        vision=traits.vision if details.vision is None else details.vision,
        thinking=traits.thinking if details.thinking is None else details.thinking,
        tools=traits.tools if details.tools is None else details.tools,
    )
    return served_traits, _window(details, listed, traits, setting, traits_source)


def _window(
    details: ModelEntry, listed: ModelEntry, traits: ModelTraits, setting: int, traits_source: str
) -> Window:
    """The user's `setting` (0 = none), else the size that the server names, else the traits' size.

    `listed` is the model in the server's list, `details` what a probe added to it.
    """
    output = details.output_limit or listed.output_limit or traits.output_limit
    if setting:
        return Window(setting, output, "the provider's setting context_size")
    if details.context_size:
        return Window(details.context_size, output, details.source or "the server")
    if traits.context_size:
        return Window(traits.context_size, output, traits_source)
    return Window(0, output)


async def _probed(client: ApiClient, adapter: Adapter, listed: ModelEntry) -> ModelEntry:
    """The result of the most reliable probe with a context size, else the list's entry.

    Abilities of the model may come from another probe than its context size.
    """
    details, has_size = listed, False
    abilities = {name: getattr(listed, name) for name in ("vision", "thinking", "tools")}
    for probe in adapter.probes(listed.id):
        try:
            body = await client.fetch(probe, max_attempts=1)
        except BackendError:
            continue  # probes are optional; the list has shown that the server is reachable
        result = adapter.parse_probe(probe, body, listed.id)
        if result is None:
            continue
        if result.context_size and not has_size:
            details, has_size = result, True
        for name, known in abilities.items():
            abilities[name] = getattr(result, name) if known is None else known
        if has_size and abilities["vision"] is not None:
            break  # thinking and tools come with the same probe as vision
    return structs.replace(details, **abilities)


def _only(models: list[ModelEntry], client: ApiClient) -> str:
    """The id of the one model; raises InvalidRequestError if the user must name one."""
    if len(models) == 1:
        return models[0].id
    target = client.target()
    if not models:
        raise InvalidRequestError(
            f"{target} does not list its models; name one with {target.how_to_choose}.", "model"
        )
    names = ", ".join(sorted(m.id for m in models)[:MAX_NAMES])
    raise InvalidRequestError(
        f"{target} offers {len(models)} models; choose one with {target.how_to_choose}: {names}",
        "model",
    )
