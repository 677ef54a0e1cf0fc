"""What models see of the tools."""

import json
from typing import Annotated, Any

import pydantic
import pytest

from shepherd.agents.ask import AskArguments
from shepherd.agents.task import TaskAtArguments
from shepherd.knowledge.skill_tool import SkillArguments
from shepherd.models import builtin_model
from shepherd.records.model import model_of
from shepherd.records.record import Field, Record
from shepherd.tools.base import Arguments
from shepherd.tools.builtin import default_registry
from shepherd.tools.deferred.search import FindArguments
from shepherd.tools.memory import (
    KeyArguments,
    OptionalKeyArguments,
    SearchArguments,
    SetArguments,
)
from shepherd.tools.model_arguments import ModelArguments
from shepherd.tools.plan import PlanArguments, PresentArguments
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.schema import compact_schema

SIGNATURES = """
list_directory(path?)
read_file(path, offset?, limit?)
write_file(path, content)
edit_file(path, old_string, new_string, replace_all?)
delete_file(path)
glob(pattern, path?)
grep(pattern, path?, glob?)
execute_command(command, cwd?, timeout?, background?)
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


class InnerModel(ModelArguments):
    """Inner words."""

    title: Annotated[str, pydantic.Field(description="kept")]


class OuterModel(ModelArguments):
    """Outer words."""

    title: str = "x"
    inner: InnerModel
    many: list[InnerModel] = pydantic.Field(default_factory=list[InnerModel])


@pytest.mark.parametrize("kind", [Outer, OuterModel])
def test_a_schema_has_no_noise_and_keeps_arguments_called_like_it(kind: Any) -> None:
    inner = {
        "description": "Inner words.",
        "type": "object",
        "properties": {"title": {"type": "string", "description": "kept"}},
        "required": ["title"],
    }
    assert compact_schema(kind) == {
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
        *(PlanArguments, PresentArguments, AskArguments, TaskAtArguments, SkillArguments),
    ],
)
def test_the_schema_of_a_record_is_the_same_text_as_that_of_its_model(kind: type[Record]) -> None:
    """A model that was trained on the text reads the same, whichever of the two writes it."""
    assert json.dumps(compact_schema(kind)) == json.dumps(compact_schema(model_of(kind)))


def test_a_type_without_a_known_schema_is_refused() -> None:
    class Odd(Arguments):
        data: bytes

    with pytest.raises(TypeError, match="json_schema"):
        compact_schema(Odd)


def test_names_are_unique() -> None:
    tools = default_registry()
    first = tools.get("get_time")
    assert first is not None
    with pytest.raises(ValueError, match="get_time"):
        ToolRegistry([first, first])
