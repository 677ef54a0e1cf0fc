"""Pydantic's errors in one line that a small model can act on."""

from pydantic import BaseModel, ValidationError

from shepherd.validation import describe_problem

_MAX_PROBLEMS = 3


def argument_errors(error: ValidationError, model: type[BaseModel]) -> str:
    """Each wrong argument by name, with its error."""
    problems: list[str] = []
    for detail in error.errors(include_url=False, include_context=False):
        name = str(next(iter(detail["loc"]), ""))
        takes = ", ".join(model.model_fields) or "nothing"
        text = describe_problem(detail, name, unknown=f"{name} is unknown; it takes {takes}")
        if text not in problems:
            problems.append(text)
    more = f"; {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(problems[:_MAX_PROBLEMS]) + more
