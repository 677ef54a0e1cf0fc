"""The field that names the model of a request."""

from typing import Annotated

from pydantic import Field

ModelName = Annotated[
    str | None,
    Field(description="A model on offer, which answers under this name; without it the default."),
]
