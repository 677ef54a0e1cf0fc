"""Opens a conversation from Python; a function of the program approves calls."""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, TypedDict, Unpack, cast

from msgspec import Struct

from shepherd import errors, validation
from shepherd.config.load import load_config
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import Ephemeral, ProviderBook
from shepherd.conversation.build import open_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.model_choice import model_from_user, model_of_flags, override_model
from shepherd.conversation.session_start import SessionStart
from shepherd.sdk.chat import Chat
from shepherd.sdk.turn import Answer
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.tool import AnyTool

ApprovalAnswer: TypeAlias = bool | Choice | Approval | Mapping[str, str]
"""A mapping has a value for each of the request's `fields`, and allows the call once."""

ApprovalCallback: TypeAlias = Callable[
    [ApprovalRequest], ApprovalAnswer | Awaitable[ApprovalAnswer]
]

LATEST = "latest"
"""The `session` for the last one of the directory."""

NO_CALLBACK = "denied: this call needs approval, and the program has no approve callback"
DENIED = "denied by the approve callback"


class CallbackApprover(Struct, frozen=True):
    """Asks a callback; anything but a clear yes denies the call, and so does a missing callback."""

    callback: ApprovalCallback | None

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The callback's answer; an exception of the callback denies the call."""
        if self.callback is None:
            return Approval(Choice.DENY, reason=NO_CALLBACK, unanswered=True)
        answer = self.callback(request)
        return _approval(await answer if inspect.isawaitable(answer) else answer, request)


def _approval(answer: object, request: ApprovalRequest) -> Approval:
    """`answer` as an approval; a text such as "no" is true in Python, but must not allow a call."""
    if isinstance(answer, Approval):
        return answer
    if isinstance(answer, Mapping) and request.fields:
        values = cast(Mapping[str, object], answer)
        texts = tuple(str(values.get(field, "")) for field in request.fields)
        return Approval(Choice.ONCE, values=texts)
    if isinstance(answer, Choice):
        return Approval(answer, reason=DENIED)  # the reason counts only for a denial
    return Approval(Choice.ONCE if answer is True else Choice.DENY, reason=DENIED)


class Options(TypedDict, total=False):
    """The options of a conversation; all are optional.

    `model` and `provider` are as `--model` and `--provider`. A provider may also be a table of its
    settings as in providers.toml, with its `key` in plain text. `tools` are names of Shepherd's
    tools and your own tools; without it, the settings decide. `approve` answers for the user;
    without it, calls that need approval are denied. `session` is the id of a saved session, or
    `latest`; `save` keeps a new one. `system_message` replaces Shepherd's own. `settings` are
    values by `section.key`, and override the settings files. `directory` is where tools work, by
    default the working directory. `knowledge` False leaves out AGENTS.md, skills and custom
    commands of the user and of the directory.
    """

    model: str
    provider: str | Mapping[str, object]
    tools: Iterable[str | AnyTool]
    approve: ApprovalCallback
    session: str
    save: bool
    system_message: str
    settings: Mapping[str, object]
    directory: str | os.PathLike[str]
    knowledge: bool


class Opening(AbstractAsyncContextManager[Chat]):
    """The context of an open conversation, which keeps it: a program may only keep the `Chat`."""

    def __init__(self, options: Options) -> None:
        self._opened = _opened(self, options)

    async def __aenter__(self) -> Chat:
        return await self._opened.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)


def open_chat(**options: Unpack[Options]) -> Opening:
    """An open conversation; `Options` describes the options.

    Entering raises ConfigError, SessionError, and BackendError if the model can't be opened.
    """
    return Opening(options)


@asynccontextmanager
async def _opened(opening: Opening, options: Options) -> AsyncGenerator[Chat]:
    """The conversation, which is closed with the context."""
    cwd, env = _directory(options), os.environ
    tools = options.get("tools")
    chosen = None if tools is None else list(tools)  # None: the settings decide; []: no tools
    described = _described_provider(options)
    config = model_of_flags(load_config(cwd, env, _overrides(options, chosen, described, cwd)))
    book = ProviderBook.from_env(env, described)
    session = options.get("session", "")
    start = SessionStart(latest=True) if session == LATEST else SessionStart(id=session)
    async with open_conversation(config, env, cwd, start, book) as conversation:
        if chosen is not None:
            _choose_tools(conversation, chosen)
        backend = await conversation.backend()
        chat = Chat(conversation, CallbackApprover(options.get("approve")), opening)
        if chosen and (missing := _not_offered(conversation, chosen)):
            conversation.notices.tell(
                f"{backend.info.id} was trained on certain tools only; not offered: {missing}"
            )
        try:
            yield chat
        finally:
            await chat.aclose()


def ask(prompt: str, **options: Unpack[Options]) -> Answer:
    """The answer to one prompt, for programs without an event loop.

    Takes the options of `shepherd.open` and raises the same errors.
    """

    async def answer() -> Answer:
        async with open_chat(**options) as chat:
            return await chat.answer(prompt)

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # there is none
        return asyncio.run(answer())
    raise errors.ShepherdError(
        "shepherd.ask can't run within an event loop; use `async with shepherd.open()` there."
    )


def _directory(options: Options) -> Path:
    """The directory where tools work; raises ConfigError if it is missing."""
    directory = Path(options.get("directory", "")).absolute()
    if not directory.is_dir():
        raise errors.ConfigError(f"{directory} is not a directory; tools could not work there.")
    return directory


def _described_provider(options: Options) -> Ephemeral | None:
    """The provider that the options describe, None if they name one."""
    provider = options.get("provider")
    if provider is None or isinstance(provider, str):
        return None
    values = dict(provider)
    name = str(values.pop("name", values.get("type", "")))
    key = str(values.pop("key", ""))
    if "model" in options:
        values["model"] = options["model"]
    return Ephemeral(make_provider(name, values), key)


def _overrides(
    options: Options, tools: list[str | AnyTool] | None, described: Ephemeral | None, cwd: Path
) -> Mapping[str, object]:
    """The settings that the options mean; `tools` and `described` are two of these, read."""
    provider, model = options.get("provider"), options.get("model")
    overrides: dict[str, object] = {
        "terminal.save_sessions": options.get("save", False) or "session" in options
    }
    if described is not None:
        overrides["model.provider"] = described.provider.name
    elif provider is None or isinstance(provider, str):
        name = None if model is None else model_from_user(model, cwd)
        overrides |= override_model(provider, name)
    if tools is not None:  # no others: the settings would add the tool that asks other providers
        overrides |= {"model.tools": bool(tools), "tools.ask_providers": False}
    if "system_message" in options:
        overrides["model.system_message"] = options["system_message"]
    if "knowledge" in options:
        overrides["knowledge.enabled"] = options["knowledge"]
    return overrides | dict(options.get("settings", {}))


def _choose_tools(conversation: Conversation, chosen: list[str | AnyTool]) -> None:
    """Keep only the chosen tools, and add the program's own; raises ConfigError."""
    registry = conversation.registry
    for name in (tool for tool in chosen if isinstance(tool, str)):
        if registry.get(name) is None:
            guess = validation.nearest(name, registry.names)
            suggestion = f"; did you mean {guess}?" if guess else f": {', '.join(registry.names)}"
            raise errors.ConfigError(f"There is no tool {name!r}{suggestion}")
    for name in registry.names:
        if name not in chosen:
            registry.remove(name)
    for tool in chosen:
        if not isinstance(tool, str):
            if registry.get(tool.name) is not None:
                raise errors.ConfigError(f"Two tools are named {tool.name}.")
            registry.add(tool)


def _not_offered(conversation: Conversation, chosen: list[str | AnyTool]) -> str:
    """The chosen tools that the model is not offered."""
    offered = {spec.name for spec in conversation.session.tools}
    names = [tool if isinstance(tool, str) else tool.name for tool in chosen]
    return ", ".join(name for name in names if name not in offered)
