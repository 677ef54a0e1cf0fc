"""The base of all sections of the settings: one pydantic model per TOML section."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section; it refuses unknown keys and values of another type.

    Its validator is built when a value is validated, which few runs do for most sections.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,
    )
