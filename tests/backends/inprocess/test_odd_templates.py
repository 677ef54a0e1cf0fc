# ruff: noqa: E501, ISC004 - templates are long texts
"""Templates that would take any time or memory, and those that must pay nothing for them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from jinja2.sandbox import SandboxedEnvironment

from shepherd.backends.inprocess import render_guard, render_process
from shepherd.backends.inprocess.render_guard import ExhaustedError
from shepherd.backends.inprocess.render_process import RenderError, RenderProcess
from shepherd.backends.inprocess.template import CHATML
from shepherd.backends.inprocess.template_environment import (
    OddTemplateError,
    compile_template,
    render_template,
)
from tests.backends.inprocess.test_compiler import children
from tests.examples import some

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]
ROOM = 1 << 20

ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{{ range(99999) | list | string | length }}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}x{% endmacro %}{{ f(60) }}",
]

LARGE = [
    "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x %}" * 40,
    "{% set x %}aaaaaaaa{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
    "{% set x = 'a' %}" + "{% set x = x | replace('a', 'aaaaaaaa') %}" * 40,
    "{{ 'a'" + ".replace('a', 'aaaaaaaa')" * 40 + " }}",
    "{% set ns = namespace(x='\"') %}{% for i in range(99) %}{% set ns.x = ns.x | tojson %}{% endfor %}",
    "{% set ns = namespace(x=[1, 2]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x | string | list %}{% endfor %}",
    "{% macro f(s, n) %}{{ f(s ~ s, n - 1) if n else s }}{% endmacro %}{{ f('ab', 60) }}",
    "{% macro a() %}x{% endmacro %}{% macro b() %}" + "{{ a() }}" * 999 + "{% endmacro %}"
    "{% macro c() %}" + "{{ b() }}" * 999 + "{% endmacro %}" + "{{ c() }}" * 9,
    "{% for a in range(99999) %}{{ messages | tojson }}{% endfor %}",
    "{% for a in range(99999) %}{{ messages[0].content | upper }}{{ messages }}{% endfor %}",
]

ODD = [
    "{{ messages | tojson(indent=10**9) }}",
    "{{ messages | tojson(indent=1000000000) }}",
    "{{ 'a' * 10**10 }}",
    "{{ 10**(10**10) }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ 'a' | center(10**10) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{% set x = [1] %}{% for i in x %}{% set _ = x.append(1) %}{% endfor %}",
    "{% set x = ['a'] %}" + "{% set x = [x, x] %}" * 40 + "{{ x | tojson }}",
]


def here(source: str, variables: Mapping[str, object] | None = None) -> str:
    return render_template(compile_template(source), variables or {"messages": MESSAGES}, NOW, ROOM)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_guard, "MAX_SECONDS", 0.2)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("source", [*ENDLESS, *LARGE])
def test_a_plain_template_ends(source: str) -> None:
    with pytest.raises(ExhaustedError):
        here(source)


@pytest.mark.parametrize("source", ODD)
def test_an_odd_template_is_not_rendered_here(source: str) -> None:
    with pytest.raises(OddTemplateError):
        compile_template(source)


@pytest.mark.parametrize("source", some(ODD[:-1], "render", 3))
def test_an_odd_template_ends_in_its_process(source: str) -> None:
    process = RenderProcess(source)
    with pytest.raises((ExhaustedError, RenderError)):
        process.render({"messages": MESSAGES}, NOW, ROOM)


def test_a_process_ends_with_its_template() -> None:
    before = children()
    process = RenderProcess("{{ 'a' * messages | length }}")
    process.render({"messages": MESSAGES}, NOW, ROOM)
    assert not children() <= before
    del process
    assert children() <= before


def test_a_process_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_process, "_WALL_SECONDS", 0.2)
    process = RenderProcess("{{ messages | length * 1 }}" + ODD[3])
    with pytest.raises(ExhaustedError):
        process.render({"messages": MESSAGES}, NOW, ROOM)


def test_an_odd_template_gives_the_text_that_jinja_gives() -> None:
    source = (
        "{% for m in messages %}{{ [m.role, m.content] | join(': ') * 2 }}\n{% endfor %}"
        "{{ strftime_now('%Y') }}{{ '%5d' % 3 }}{{ {'a': 'é\ud800'} | tojson }}{{ x is defined }}"
    )
    process = RenderProcess(source)
    for content in ("hi", 'é\n"', "\ud800", "a" * 100_000):
        variables = {"messages": [{"role": "user", "content": content}]}
        expected = render_template(compile_template(source, odd=True), variables, NOW, ROOM)
        assert process.render(variables, NOW, ROOM) == expected


def test_an_error_of_an_odd_template_is_told_and_the_next_text_comes() -> None:
    process = RenderProcess("{{ raise_exception('no ' * 2) if messages | length > 1 else 'yes' }}")
    with pytest.raises(RenderError, match="no no"):
        process.render({"messages": MESSAGES}, NOW, ROOM)
    assert process.render({"messages": []}, NOW, ROOM) == "yes"


def test_a_process_that_was_ended_is_started_again() -> None:
    process = RenderProcess("{{ 'a' * messages | length }}")
    with pytest.raises(ExhaustedError):
        process.render({"messages": "a" * ROOM}, NOW, 10)
    assert process.render({"messages": MESSAGES}, NOW, ROOM) == "aa"


IDIOMS = [
    CHATML,
    "{% for m in messages %}{{ '<|' + m.role + '|>' ~ m.content | trim }}{% if loop.last %}{{ eos }}"
    "{% endif %}{% else %}none{% endfor %}{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}",
    "{% macro show(t) %}{% if t is mapping %}{% for k, v in t | dictsort %}{{ k }}:{{ show(v) }}"
    "{% endfor %}{% elif t is string %}{{ t }}{% else %}{{ t | string }}{% endif %}{% endmacro %}"
    "{% for t in tools %}{{ show(t) }}{% endfor %}",
    "{% set ns = namespace(text='', n=0) %}{% for m in messages %}{% set ns.text = ns.text + m.content %}"
    "{% set ns.n = ns.n + 1 %}{% if ns.n % 2 == 0 %}{{ ns.text }}{% endif %}{% endfor %}{{ ns.n }}",
    "{% for m in messages[::-1] %}{% set i = messages | length - 1 - loop.index0 %}{{ i }}{{ m.role }}"
    "{% if '</t>' in m.content %}{{ m.content.split('</t>')[-1].lstrip('\\n') }}{% endif %}{% endfor %}",
    "{% for m in messages %}{% for n in messages if n.role == m.role %}{{ loop.length }}{{ loop.last }}"
    "{{ n.content[:3] }}{% endfor %}{% for c in m.tool_calls %}{{ c }}{% endfor %}{% endfor %}",
    "{{ strftime_now('%d %b %Y') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | map(attribute='content') | join(', ') }}{{ 'a' if tools is defined else 'b' }}",
    "{% set x %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}{{ x | trim | upper }}",
    (Path(__file__).parents[3] / "training" / "template.jinja").read_text(),
]


@pytest.mark.parametrize("source", IDIOMS)
def test_usual_templates_are_rendered_here_and_give_what_jinja_gives(source: str) -> None:
    function = {"name": "a", "description": "does", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    variables = {"messages": MESSAGES * 3, "tools": tools, "eos": "</s>"}
    plain = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    plain.filters["tojson"] = compile_template("").environment.filters["tojson"]
    render_guard.budget.begin(ROOM)
    expected = plain.from_string(source).render(variables, strftime_now=NOW.strftime)
    assert here(source, variables) == expected
