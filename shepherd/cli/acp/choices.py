"""What an editor's user chooses for a session: the mode, the model, and how much it reasons.

Editors that know only modes get these apart, too.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from acp import schema

from shepherd.cli.acp.updates import invalid
from shepherd.config.provider import LOCAL
from shepherd.config.section import ApproveMode, Effort
from shepherd.conversation.commands.present import MODE_TEXT, set_mode
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ConfigError

Choices = list[schema.SessionConfigOptionSelect | schema.SessionConfigOptionBoolean]

Id = Literal["mode", "model", "thought_level"]
"""The ids, which are the protocol's categories."""
MODE, MODEL = "mode", "model"
_OWN_EFFORT = "default"


def choices_of(conversation: Conversation) -> Choices:
    """All choices, and what is chosen now."""
    session, policy = conversation.session, conversation.policy
    answering = conversation.slot.provider or LOCAL
    models = {LOCAL: "", answering: ""}
    with suppress(ConfigError):  # the code that needs a provider reports it
        models |= {provider.name: "" for provider in conversation.providers.all()}
    efforts = dict.fromkeys([_OWN_EFFORT, *(effort.value for effort in Effort if effort)], "")
    effort = (session.thinking_effort or _OWN_EFFORT) if session.thinking else Effort.NONE.value
    return [
        _choice(
            MODE, "Mode", policy.mode.value, {mode.value: text for mode, text in MODE_TEXT.items()}
        ),
        _choice(MODEL, "Model", answering, models),
        _choice("thought_level", "Reasoning", effort, efforts),
    ]


def mode_state(conversation: Conversation) -> schema.SessionModeState:
    """All modes, and the current one."""
    modes = [
        schema.SessionMode(id=mode.value, name=mode.value.capitalize(), description=MODE_TEXT[mode])
        for mode in ApproveMode
    ]
    return schema.SessionModeState(
        current_mode_id=conversation.policy.mode.value, available_modes=modes
    )


async def choose(conversation: Conversation, id: str, value: object) -> str:
    """Make a choice; returns a sentence if it works otherwise than it says, else "".

    Raises RequestError for one that is not offered, and ShepherdError if the model can't be opened.
    """
    offered = {choice.id: choice for choice in choices_of(conversation)}
    values = [o.value for o in getattr(offered.get(id), "options", ())]
    if value not in values:
        raise invalid(f"There is no {id} {value}; choose one of {', '.join(values or offered)}.")
    if id == MODE:
        return await set_mode(conversation, ApproveMode(value))
    if id == MODEL:
        await conversation.slot.switch_provider(str(value))
        return ""
    session = conversation.session
    session.thinking = value != Effort.NONE
    session.thinking_effort = "" if value in (_OWN_EFFORT, Effort.NONE) else str(value)
    return ""


def _choice(
    id: Id, name: str, current: str, values: Mapping[str, str]
) -> schema.SessionConfigOptionSelect:
    """A choice; `values` have descriptions, or ""."""
    return schema.SessionConfigOptionSelect(
        id=id,
        name=name,
        category=id,
        type="select",
        current_value=current,
        options=[
            schema.SessionConfigSelectOption(
                value=value,
                name=value if id == MODEL else value.capitalize(),  # a provider keeps its name
                description=text or None,
            )
            for value, text in values.items()
        ],
    )
