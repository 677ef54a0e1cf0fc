"""Messages of a synthetic dialogue and their text, exactly as the chat template renders it."""

import json
import random
from dataclasses import dataclass, field

from training.toolbox import Tool
from training.words import Words


@dataclass(frozen=True)
class Call:
    """A tool call: the offered name and its arguments."""

    name: str
    args: dict[str, object]

    def text(self) -> str:
        """The call as Pup writes it."""
        body = json.dumps({"name": self.name, "arguments": self.args}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"


@dataclass(frozen=True)
class Message:
    """One message; `label` names the behaviour that an assistant message shows."""

    role: str
    content: str = ""
    call: Call | None = None
    thought: str | None = None
    label: str = ""

    def body(self) -> str:
        """Content or call, without the thought."""
        return self.call.text() if self.call else self.content


@dataclass
class Scene:
    """The state of a conversation while it is written."""

    words: Words
    tools: list[Tool]
    system: str = ""
    folder: str = ""  # the working directory that the system message names
    thinks: float = 0.0  # share of the replies with a thought
    long: bool = False  # whether tool results may be long
    messages: list[Message] = field(default_factory=list)
    file: str = ""  # the file spoken of last
    facts: dict[str, str] = field(default_factory=dict)
    rest: tuple[str, int] | None = None  # the file that was cut, and the line to go on from

    @property
    def rng(self) -> random.Random:
        return self.words.rng

    @property
    def held(self) -> bool:
        return self.words.held

    def tool(self, kind: str) -> Tool | None:
        """The offered tool that does what Shepherd's `kind` does."""
        return next((tool for tool in self.tools if tool.kind == kind), None)

    def user(self, text: str) -> None:
        """The user speaks."""
        self.messages.append(Message("user", text))

    def say(self, text: str, thought: str, label: str) -> None:
        """Pup answers."""
        self.messages.append(Message("assistant", text, None, self._thought(thought), label))

    def act(self, tool: Tool, args: dict[str, object], want: str, label: str) -> None:
        """Pup calls a tool."""
        call = Call(tool.name, {tool.renamed.get(k, k): v for k, v in args.items()})
        thought = f"The user wants to {want}. I call {tool.name}."
        self.messages.append(Message("assistant", "", call, self._thought(thought), label))

    def result(self, text: str) -> None:
        """The tool answers."""
        self.messages.append(Message("tool", text))

    def _thought(self, text: str) -> str | None:
        return text if self.rng.random() < self.thinks else None


def system_text(system: str, tools: list[Tool]) -> str:
    """The system message: its text, then the tools, one a line."""
    if not tools:
        return system
    listed = "# Tools\n" + "\n".join(tool.line for tool in tools)
    return f"{system}\n{listed}" if system else listed


def render(system: str, tools: list[Tool], messages: list[Message]) -> list[tuple[str, float]]:
    """Pieces of text with the weight of their loss: 1 for what Pup writes, 0 for what it must not
    learn to write, 0.1 for the rest."""
    head = system_text(system, tools)
    pieces = [(f"<|im_start|>system\n{head}<|im_end|>\n", 0.1)] if head else []
    for message in messages:
        if message.role != "assistant":
            pieces.append((f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n", 0.1))
            continue
        pieces.append(("<|im_start|>assistant\n", 0.1))
        if message.thought is not None:
            pieces.append(("<think>\n", 0.0))
            pieces.append((f"{message.thought}\n</think>\n\n", 1.0))
        pieces.append((message.body() + "<|im_end|>", 1.0))
        pieces.append(("\n", 0.1))
    return pieces
