"""All tasks, and how often each is asked for."""

from training.file_tasks import (
    delete,
    edit,
    glob,
    grep,
    list_folder,
    list_here,
    read,
    read_part,
    write,
)
from training.other_tasks import date, fetch, run, send, shell, time, variable
from training.task import Maker

# How often each task is asked for in held-out dialogues; in training the weak ones more often.
MAKERS: dict[Maker, float] = {
    list_here: 2.5, list_folder: 4, read: 5, read_part: 2, write: 4, edit: 3.5, delete: 2,
    glob: 3, grep: 4, run: 4, shell: 1.2, fetch: 1.5, send: 1.2, time: 1, date: 1, variable: 1.3,
}  # fmt: skip

PRACTICE: dict[Maker, float] = MAKERS | {read: 6, write: 6, edit: 7, grep: 5, glob: 3.5, send: 1.6}
