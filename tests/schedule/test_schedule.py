"""Jobs, their timers and their runs, with the real program and stand-ins for cron and systemd."""

import stat
from pathlib import Path

import pytest

from shepherd.errors import ConfigError, InvalidRequestError
from shepherd.schedule.jobs import MAX_RUNS, Job, JobStore, Run, name_for
from shepherd.schedule.timers import Crontab, JobCommand, SystemdTimer, parse_cron
from tests.cli.program import Program

CRONTAB = """#!/bin/sh
echo "$*" >> "$HOME/crontab.log"
if [ "$1" = -l ]; then
  [ -e "$HOME/crontab" ] && exec cat "$HOME/crontab"
  echo 'no crontab for user' >&2; exit 1
fi
exec cat > "$HOME/crontab"
"""
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$HOME/systemctl.log"
[ ! -e "$HOME/fails" ] || { echo 'no bus' >&2; exit 1; }
"""
OTHERS = "MAILTO=me\n# my jobs\n5 4 * * * echo '100%'\n"
NINE = parse_cron("0 9 * * 1-5")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on PATH with stand-ins for `crontab` and `systemctl`."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, text in {"crontab": CRONTAB, "systemctl": SYSTEMCTL}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return directory


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("others", [OTHERS, OTHERS.rstrip("\n"), ""])
def test_crontab_keeps_all_other_lines(tmp_path: Path, others: str) -> None:
    table = tmp_path / "crontab"
    if others:
        table.write_text(others)
    cron = Crontab()
    command = JobCommand(["/usr/bin/python3", "a b", "50%"], {"PATH": "/bin:/x y"})
    cron.add("one", NINE, command)
    cron.add("two", NINE, command)
    cron.add("one", parse_cron("@daily"), command)
    text = table.read_text()
    assert text.startswith(others)
    assert text.count("BEGIN shepherd schedule one") == 1
    line = r"0 0 * * * env 'PATH=/bin:/x y' /usr/bin/python3 'a b' 50\%"
    assert line in text.splitlines()
    cron.remove("one")
    cron.remove("two")
    assert table.read_text().rstrip("\n") == others.rstrip("\n")
    calls = (tmp_path / "crontab.log").read_text().count("\n")
    cron.remove("one")
    assert (tmp_path / "crontab.log").read_text().count("\n") == calls + 1, "nothing is written"


@pytest.mark.usefixtures("programs")
def test_a_block_without_an_end_is_not_touched(tmp_path: Path) -> None:
    text = f"# BEGIN shepherd schedule one\n{OTHERS}"
    (tmp_path / "crontab").write_text(text)
    with pytest.raises(ConfigError, match="END shepherd schedule one"):
        Crontab().remove("one")
    with pytest.raises(ConfigError, match="END shepherd schedule one"):
        Crontab().add("one", NINE, JobCommand(["x"], {}))
    assert (tmp_path / "crontab").read_text() == text


def test_a_control_character_is_refused() -> None:
    for words, environment in ((["a\nb"], {}), (["a"], {"PATH": "x\n* * * * * evil"})):
        with pytest.raises(ConfigError, match="control character"):
            JobCommand(words, environment)


@pytest.mark.usefixtures("programs")
def test_systemd_gets_a_service_and_a_timer(tmp_path: Path) -> None:
    units = tmp_path / "units"
    timer = SystemdTimer(units)
    assert timer.works()
    timer.add("one", NINE, JobCommand(["/p", 'a "b" $HOME %h \\'], {"PATH": "/bin:%d"}))
    service = (units / "shepherd-one.service").read_text()
    assert r'ExecStart="/p" "a \"b\" $$HOME %%h \\"' in service.splitlines()
    assert 'Environment="PATH=/bin:%%d"' in service.splitlines()
    assert (
        "OnCalendar=Mon,Tue,Wed,Thu,Fri *-*-* 09:00:00\n"
        in (units / "shepherd-one.timer").read_text()
    )
    timer.remove("one")
    assert list(units.iterdir()) == []
    log = (tmp_path / "systemctl.log").read_text()
    assert "--user enable --now shepherd-one.timer" in log
    assert "--user disable --now shepherd-one.timer" in log
    (tmp_path / "fails").touch()
    assert not timer.works()
    with pytest.raises(ConfigError, match="no bus"):
        timer.add("one", NINE, JobCommand(["/p"], {}))
    assert list(units.iterdir()) == []


def new_store(base: Path) -> JobStore:
    store = JobStore(base / "schedule")
    store.add(Job(name="one", cron=NINE.text, cwd=str(base), timer="cron"), "do it")
    return store


def test_jobs_are_private_and_names_are_checked(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((store.root / "one").stat().st_mode) == 0o700
    with pytest.raises(InvalidRequestError, match="already"):
        store.add(store.load("one"), "x")
    for name in ("..", "", "a/b", "A", "-a", "a" * 41, "a\n"):
        with pytest.raises(InvalidRequestError, match="name"):
            store.load(name)
    assert name_for("Summarise my mail, please now!", []) == "summarise-my-mail-please"
    assert name_for("…", ["job"]) == "job-2"
    store.remove("one")
    assert store.names() == []


def test_the_log_keeps_the_last_runs(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    (store.root / "one" / "runs.jsonl").write_text("broken\n")
    for number in (1, 2):
        store.log("one", Run(started="x", seconds=number, exit_code=0))
    assert [run.seconds for run in store.runs("one")] == [1, 2]
    many = "".join(f'{{"started":"x","seconds":{n},"exit_code":0}}\n' for n in range(MAX_RUNS))
    (store.root / "one" / "runs.jsonl").write_text(many)
    store.log("one", Run(started="x", seconds=-1, exit_code=0))
    assert [run.seconds for run in store.runs("one")] == [*range(1, MAX_RUNS), -1]


@pytest.mark.usefixtures("programs")
def test_the_commands_and_a_run(program: Program) -> None:
    environment = {"PATH": f"{program.home.parent}/bin:/usr/bin:/bin"}
    model = f"script:{program.home / 'script'}"
    (program.home / "script").write_text(
        'call: write_file {"path": "new", "content": "x"}\n---\ntext: Good morning.\n'
    )
    shepherd = Program(program.home, program.work, environment)
    added = shepherd.run(
        "schedule", "add", "0 9 * * 1-5", "-", "--timer", "cron", "--model", model, stdin="the news"
    )
    assert added.returncode == 0, added.stderr
    table = (program.home / "crontab").read_text()
    assert "schedule run the-news" in table
    assert "the news" not in table
    assert "the-news  0 9 * * 1-5  never ran" in shepherd.run("schedule", "list").stdout
    ran = shepherd.run("schedule", "run", "the-news")
    assert (ran.returncode, ran.stdout) == (3, "Good morning.\n"), ran.stderr
    assert not (program.work / "new").exists()
    log = shepherd.run("schedule", "log", "the-news").stdout
    assert "exit 3" in log
    assert "1 denied" in log
    assert "  Good morning." in log
    assert program.sessions[0].stem in log
    store = JobStore(program.home / ".local/state/shepherd/schedule")
    with store.running("the-news") as is_free:
        assert is_free
        assert "runs already" in shepherd.run("schedule", "run", "the-news").stderr
    assert "skipped" in store.runs("the-news")[-1].output
    assert "the news" in shepherd.run("schedule", "show", "the-news").stdout
    assert shepherd.run("schedule", "remove", "the-news").returncode == 0
    assert (program.home / "crontab").read_text() == ""
    assert shepherd.run("schedule", "list").stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("* * *", "x"),
        ("@daily", " "),
        ("@daily", "x", "--name", "../x"),
        ("@daily", "x", "--cwd", "missing"),
        ("@daily", "x", "--timer", "at"),
    ],
)
def test_a_mistake_leaves_no_job(program: Program, arguments: tuple[str, ...]) -> None:
    done = program.run("schedule", "add", *arguments)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("shepherd: ")
    assert not (program.home / ".local/state/shepherd/schedule").exists()
