"""The tasks of the agency benchmark can be solved, and are not solved by doing nothing."""

import json
from pathlib import Path

import pytest

from bench.agency.run import VARIANTS, Agency, Variant, working_directory
from bench.agency.tasks import KINDS, Task, all_tasks
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend

TASKS = all_tasks()


def solution(task: Task) -> str:
    """A script that makes the task's calls and gives its answer."""
    calls = [f"call: {name} {json.dumps(arguments)}" for name, arguments in task.calls]
    return "\n---\n".join([*calls, f"text: {json.dumps(task.answer)}"])


def agency(script: str) -> Agency:
    backend = ScriptedBackend(parse_script(script))
    return Agency(backend, backend)


def test_there_are_sixty_different_tasks_and_the_seed_makes_them() -> None:
    assert len({task.prompt for task in TASKS}) == 60
    assert {task.kind for task in TASKS[: len(KINDS)]} == {task.kind for task in TASKS}
    assert [task.prompt for task in TASKS] == [task.prompt for task in all_tasks()]
    assert [task.prompt for task in TASKS] != [task.prompt for task in all_tasks(seed=2)]


@pytest.mark.parametrize("task", TASKS[: len(KINDS)], ids=lambda task: task.kind)
async def test_a_task_is_solved_by_its_solution_alone(tmp_path: Path, task: Task) -> None:
    (tmp_path / "idle").mkdir()
    task.prepare(tmp_path / "idle")
    assert not task.check(tmp_path / "idle", "I don't know.")
    outcome = await agency(solution(task)).attempt(
        Variant("scripted"), task, working_directory(str(tmp_path))
    )
    assert outcome.success
    assert outcome.rounds == len(task.calls) + 1


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
async def test_every_variant_runs(tmp_path: Path, variant: Variant) -> None:
    [outcome] = await agency(solution(TASKS[0])).run(variant, TASKS[:1])
    assert outcome.success
