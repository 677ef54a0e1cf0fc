"""The time and the date, which must not stand in a system message."""

import time

from shepherd.tools.base import Access, Arguments, Tool, ToolContext, ToolResult


class NoArguments(Arguments):
    """Arguments of a tool that takes none."""


class GetTime(Tool[NoArguments]):
    """`14:03:22 UTC`."""

    name = "get_time"
    description = "Local time."
    arguments = NoArguments

    def accesses(self, arguments: NoArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: NoArguments, context: ToolContext) -> ToolResult:
        return ToolResult(time.strftime("%H:%M:%S %Z").strip())


class GetDate(Tool[NoArguments]):
    """`2026-11-21 Saturday`; the weekday is English whatever the locale."""

    name = "get_date"
    description = "Date and weekday."
    arguments = NoArguments

    def accesses(self, arguments: NoArguments, context: ToolContext) -> list[Access]:
        return []

    async def run(self, arguments: NoArguments, context: ToolContext) -> ToolResult:
        now = time.localtime()
        return ToolResult(f"{time.strftime('%Y-%m-%d', now)} {_WEEKDAYS[now.tm_wday]}")


_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
