"""A valid value, other than the default, for every setting."""

from pydantic.fields import FieldInfo

from shepherd.config.settings import all_fields, allowed_words, bare_type, limits

RULE = {"tool": "shell", "pattern": "git status", "decision": "allow"}


def other_value(field: FieldInfo) -> object:
    """A valid value that is not the field's default."""
    kind = bare_type(field)
    if words := allowed_words(kind):
        return next(word for word in words if word != field.default)
    if kind is bool:
        return not field.default
    if kind is int or kind is float:
        value = next(v for v in limits(field) if v is not None and v != field.default)
        return float(str(value)) if kind is float else value
    if kind is str:
        return "something"
    return ["something"] if kind == list[str] else [RULE]


HOOK = {"command": "true", "match": "shell*", "timeout": 5.0}
HOOK_EVENTS = ("session_start", "before_tool", "after_tool", "turn_end")
OTHER_VALUES = {key: other_value(field) for key, field in all_fields().items()} | {
    **{f"hooks.{event}": [HOOK] for event in HOOK_EVENTS},
    "sampling.samplers": ["temperature", "top_k"],
    "plugins.settings": {"weather": {"units": "metric", "cities": ["Oslo"]}},
    "server.aliases": {"a b": "qwen", "list": ["x", "y"], "weights": {"x/y": 1.5, "z": 2.0}},
    "server.database": "postgresql://me@db.example/shepherd?sslmode=require",
    "server.database_password": "keyring",
    "server.keep_alive": "1h30m",
    "tools.sandbox_writable": ["~/.cache/pip"],
    "tools.sandbox_readable": ["/srv/data"],
    "terminal.prices": ["qwen 0.5 1.5"],
}
TABLES = frozenset({"permissions.rules", *(f"hooks.{event}" for event in HOOK_EVENTS)})
"""Lists of tables, which one line can't set."""
