"""What models see of the tools."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from shepherd.agents.ask import AskArguments
from shepherd.agents.task import TaskArguments
from shepherd.knowledge.skills import SkillArguments
from shepherd.models import builtin_model
from shepherd.tools.deferred import FindArguments
from shepherd.tools.memory import (
    KeyArguments,
    OptionalKeyArguments,
    SearchArguments,
    SetArguments,
)
from shepherd.tools.plan import PlanArguments, PresentArguments
from shepherd.tools.registry import ToolRegistry, default_registry
from shepherd.tools.tool import Arguments, compact_schema

SCHEMAS = Path(__file__).parent / "schemas.txt"
SIGNATURES = """
list_directory(path?)
read_file(path, offset?, limit?)
write_file(path, content)
edit_file(path, old_string, new_string, replace_all?)
delete_file(path)
glob(pattern, path?)
grep(pattern, path?, glob?)
execute_command(command, cwd?, timeout?, background?, live?)
check_command(id?, offset?, wait?, kill?)
http_get(url)
http_request(method, url, headers?, body?)
get_time()
get_date()
get_environment_variable(name)
"""


def test_names_arguments_and_their_order() -> None:
    lines: list[str] = []
    for spec in default_registry().specs():
        required = spec.parameters.get("required", [])
        names = [n if n in required else f"{n}?" for n in spec.parameters["properties"]]
        lines.append(f"{spec.name}({', '.join(names)})")
    assert lines == SIGNATURES.split("\n")[1:-1]


def test_all_default_tools_together_are_small() -> None:
    from llama_cpp import Llama

    functions = [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in default_registry().specs()
    ]
    model = Llama(str(builtin_model()), vocab_only=True, verbose=False)
    tokens = model.tokenize(json.dumps(functions).encode(), add_bos=False)
    model.close()
    assert 500 < len(tokens) < 1500


class Inner(Arguments):
    """Inner words."""

    title: Annotated[str, Field(description="kept")]


class Outer(Arguments):
    """Outer words."""

    title: str = "x"
    inner: Inner
    many: tuple[Inner, ...] = ()


def test_a_schema_has_no_noise_and_keeps_arguments_called_like_it() -> None:
    inner = {
        "description": "Inner words.",
        "type": "object",
        "properties": {"title": {"type": "string", "description": "kept"}},
        "required": ["title"],
    }
    assert compact_schema(Outer) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "inner": inner,
            "many": {"type": "array", "items": inner},
        },
        "required": ["inner"],
    }


@pytest.mark.parametrize(
    "kind",
    [
        *(tool.arguments for tool in default_registry()),
        *(SearchArguments, SetArguments, KeyArguments, OptionalKeyArguments, FindArguments),
        *(PlanArguments, PresentArguments, AskArguments, TaskArguments, SkillArguments),
    ],
)
def test_the_text_that_models_were_trained_on_stays(kind: type[BaseModel]) -> None:
    assert f"{kind.__name__} {json.dumps(compact_schema(kind))}" in SCHEMAS.read_text().splitlines()


def test_names_are_unique() -> None:
    tools = default_registry()
    first = tools.get("get_time")
    assert first is not None
    with pytest.raises(ValueError, match="get_time"):
        ToolRegistry([first, first])
