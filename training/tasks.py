"""All tasks, and how often each is asked for."""

from training.everyday_tasks import (
    find_file,
    glob_ext_in,
    list_up,
    read_range,
    read_tail,
    size,
)
from training.file_tasks import (
    delete,
    edit,
    edit_drop,
    glob,
    grep,
    list_folder,
    list_here,
    read,
    read_part,
    write,
)
from training.other_tasks import append, count, date, fetch, run, send, shell, time, variable
from training.task import Maker

# How often each task is asked for in held-out dialogues; in training the weak ones more often.
MAKERS: dict[Maker, float] = {
    list_here: 2.5, list_folder: 4, read: 5, read_part: 2, write: 4, edit: 3.5, delete: 2,
    glob: 3, grep: 4, run: 4, shell: 1.2, fetch: 1.5, send: 1.2, time: 1, date: 1, variable: 1.3,
}  # fmt: skip

PRACTICE: dict[Maker, float] = MAKERS | {
    read: 6, write: 6, edit: 7, grep: 5, glob: 3.5, send: 1.6, run: 5, append: 1.4, count: 1,
    list_up: 0.6, read_range: 1.5, read_tail: 1, size: 0.6, find_file: 1.6, glob_ext_in: 1.2,
    edit_drop: 1.3,
}  # fmt: skip
