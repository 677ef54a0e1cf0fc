"""What rules are about: the accesses of a call, and tools by name."""

from enum import StrEnum

from msgspec import Struct


class AccessKind(StrEnum):
    """The kind of access of a call to its target."""

    READ = "read"
    WRITE = "write"
    SHELL = "shell"
    SHELL_NETWORK = "shell_network"  # a command in the sandbox, with network
    UNSANDBOXED = "unsandboxed"  # a command outside the sandbox
    NETWORK = "network"
    ENVIRONMENT = "environment"
    REPOSITORY = "repository"  # git runs in a directory, with the settings there
    MCP = "mcp"  # a tool of an MCP server
    TOOL = "tool"  # a tool that does not declare its accesses
    PROCESS = "process"  # the end of a background command
    MEMORY = "memory"  # a change of the user's memory
    HOOK = "hook"  # a hook of the user asks about the call
    PLAN = "plan"  # the end of plan mode, which only the user decides
    EFFECT = "effect"  # a change that a command has made in its layer
    NONE = "none"


OPENS_SANDBOX = frozenset({AccessKind.SHELL_NETWORK, AccessKind.UNSANDBOXED})
"""Kinds that only a rule that names them, or the user's approval, can allow."""


class Claim(StrEnum):
    """How certain an access is."""

    EXACT = "exact"  # the call does just this
    MENTION = "mention"  # the call may do this: only a rule that denies it counts
    HELD = "held"  # it may become another: outside of a box no rule can allow it
    OPAQUE = "opaque"  # can't be read in full: no rule can allow it


class Access(Struct, frozen=True):
    """One target that a call touches.

    `target` is a resolved absolute path, a command in canonical shell quoting, a URL, the name of
    a variable, or `SERVER/TOOL`. With `wildcards`, a wildcard of a rule that allows may
    stand for the words of a command: it only reads, or a box holds it.
    """

    kind: AccessKind
    target: str
    claim: Claim = Claim.EXACT
    wildcards: bool = False

    def to_json(self) -> dict[str, object]:
        """The access in the form for hooks, and for clients of a shared session."""
        return {"kind": self.kind.value, "target": self.target, "claim": self.claim.value}


class EffectAccess(Access, frozen=True):
    """One change that a command has made in its layer; `target` is `write PATH` or `delete PATH`.

    `files` is the number of all its changes. `untracked` means that git does not have the file.
    A deletion that `loses` nothing is of what this session has made, or what it has moved.
    """

    files: int = 0
    untracked: bool = False
    loses: bool = True


EXECUTE_COMMAND = "execute_command"
READ_FILE, WRITE_FILE, EDIT_FILE = "read_file", "write_file", "edit_file"
"""Names of tools that default rules name too."""
