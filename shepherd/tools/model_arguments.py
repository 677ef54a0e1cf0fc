"""Arguments of tools whose fields are known while the program runs."""

from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator


class ModelArguments(BaseModel):
    """Base of arguments as a pydantic model; it checks them as `Arguments` does."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        defer_build=True,  # most tools are neither offered to a model nor called
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        values = cast(dict[str, Any], data)
        optional = {n for n, f in cls.model_fields.items() if not f.is_required()}
        return {k: v for k, v in values.items() if v is not None or k not in optional}
