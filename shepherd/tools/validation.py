"""Pydantic's complaints in one line that a small model can act on."""

from pydantic import BaseModel, ValidationError

_SHOWN = 3


def argument_errors(error: ValidationError, model: type[BaseModel]) -> str:
    """Each wrong argument by name with what is wrong with it."""
    problems: list[str] = []
    for detail in error.errors(include_url=False, include_context=False):
        name = ".".join(str(part) for part in detail["loc"][:1])
        if detail["type"] == "missing":
            text = f"{name} is missing"
        elif detail["type"] == "extra_forbidden":
            text = f"{name} is unknown; it takes {', '.join(model.model_fields) or 'nothing'}"
        else:
            message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            text = f"{name}: {message}" if name else message
        if text not in problems:
            problems.append(text)
    more = f"; {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more
