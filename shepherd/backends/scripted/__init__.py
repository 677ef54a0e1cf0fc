"""A backend that plays a script: for demonstrations, for tests of clients, for bug reports."""

from shepherd.backends.scripted.backend import ScriptedBackend
from shepherd.backends.scripted.script import Script, load_script, parse_script

__all__ = ["Script", "ScriptedBackend", "load_script", "parse_script"]
