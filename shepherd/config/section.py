"""The base of all sections of the settings: one record per TOML section."""

from types import MappingProxyType

from shepherd.records.record import Record


class Section(Record, is_base=True):
    """A section; it refuses unknown keys and values of another type."""

    validation = MappingProxyType({"extra": "forbid", "strict": True, "allow_inf_nan": False})
