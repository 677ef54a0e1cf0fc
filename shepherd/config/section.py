"""The base of all sections of the settings: one pydantic model per TOML section."""

from pydantic import BaseModel, ConfigDict

LIVE = "live"
"""Marks, in `Annotated`, a setting that a reload applies to a running server."""


class Section(BaseModel):
    """A section; it refuses unknown keys and values of another type.

    `model_copy(update=...)` changes a copy without a check.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,  # the check of a section is made with its first value
    )
