"""Losses of other agents' users, as lines of commands, and a project in which each of them hits."""

import shutil
import sqlite3
import subprocess
import tarfile
import zipfile
from pathlib import Path

INCIDENTS = {
    # removed by a wrong name
    "unset variable before a wildcard": 'rm -rf "$PWD/"$BUILD_DIR*',
    "space in an unquoted path": "d=drafts/old\\ work; rm -rf $(echo drafts/old work) work",
    "backslash that ends the quoting": "d='photos\\ '; rm -rf ./${d%%\\\\*}/",
    "all but what a pattern names": "bash -O extglob -c 'rm -rf !(src)'",
    "names with spaces through xargs": "ls photos/* | xargs rm -f; ls -d 'my'* | xargs -n1 rm -rf",
    "the wrong directory after a failed cd": "cd no/such/dir 2>/dev/null; rm -rf ./*",
    "untracked files as if they were new": "git ls-files --others -z | xargs -0 rm -f",
    "ignored files as if they were made": "git ls-files -oi --exclude-standard -z | xargs -0 rm",
    # removed by a program that tidies up
    "git clean": "git clean -fdxq",
    "find -delete": "find . -name '*.txt' -not -path './.git/*' -delete",
    "find -exec rm": "find data -mindepth 1 -exec rm -rf {} +",
    "find with its options in the wrong order": "find photos -delete -name '*.tmp'",
    "make clean": "make -s clean",
    "a script of npm": "npm run --silent clean",
    "shutil.rmtree": "python3 -c \"import shutil; shutil.rmtree('data')\"",
    "rsync --delete": "rsync -a --delete src/ data/",
    "a folder that may not be changed": "chmod -R a-w drafts; chmod -R u+w drafts; rm -rf drafts",
    # moved
    "mv onto a file": "mv notes.txt 'my file.txt'",
    "mv of many onto one": "for f in photos/*; do mv $f photo.jpg; done",
    "a folder that is moved and removed": "mv data old-data && rm -rf old-data",
    "names that differ in case": "for f in README.md; do mv $f ${f,,}; done; mv drafts Work",
    "a link in place of a folder": "rm -rf data; ln -s ../elsewhere data; ln -s src data",
    "a folder in place of a file": "rm data/base.db && mkdir data/base.db",
    "through a linked folder": "rm -rf current/*; rm current",
    # overwritten
    "truncating redirect": "grep -v x notes.txt > notes.txt",
    "redirect in a loop": "for f in src/*.py; do sed s/a/b/ $f > $f; done",
    "truncate": "truncate -s 0 data/base.db photos/*",
    "dd": "dd if=/dev/zero of=data/base.db bs=1k count=4 2>/dev/null",
    "cp onto what is newer": "cp -r backup/. src/",
    "tar over files": "tar xf backup.tar",
    "unzip over files": "unzip -oq backup.zip",
    "patch -R": "patch -sR -p1 -f < last.patch",
    "sed over a tree": "grep -rl e --exclude-dir=.git . | xargs -d '\\n' sed -i 's/e/E/g'",
    "a formatter on the wrong tree": "find . -name '*.[pm]*' -type f | xargs perl -pi -e 's/ +//'",
    "a migration": "sqlite3 data/base.db 'DROP TABLE users; VACUUM'",
    "a database that is made anew": "rm data/base.db; sqlite3 data/base.db 'CREATE TABLE u(x)'",
    "an environment from its example": "cp env.example settings.local",
    "all rights taken away": "find data photos -depth -exec chmod 000 {} +",
    # thrown away by git
    "git checkout": "git checkout -q -- .",
    "git reset --hard": "git reset -q --hard",
    "git stash and drop": "git stash -qu && git stash drop -q",
    "a rebase in the middle of work": "git stash -q; git rebase -q HEAD~1; git stash drop -q",
}
"""What happened, and a line that does it in the project of `fill`."""

_FILES = {
    ".gitignore": "data\n*.log\nsettings.local\n",
    "Makefile": "clean:\n\trm -rf build data photos *.log\n",
    "README.md": "# Read\n\nme\n",
    "package.json": '{"scripts": {"clean": "rm -rf build data drafts"}}',
    "src/main.py": "def main():\n    pass\n",
    "src/deep/other.py": "other = 1\n",
}
_LATER = {
    "src/main.py": "def main():\n    return the_work_of_a_day\n",
    "README.md": "# Read\n\nme all\n",
    "notes.txt": "not in git\nx\n",
    "my file.txt": "two words\n",
    "build/out": "made\n",
    "build.log": "log\n",
    "data/uploads/one.bin": "\0" * 5000,
    "drafts/old work": "a chapter\n",
    "drafts/old/chapter": "another\n",
    "work": "more\n",
    "photos/1.jpg": "one",
    "photos/2.jpg": "two",
    "settings.local": "KEY=of the user\n",
    "env.example": "KEY=\n",
    "backup/main.py": "old\n",
}


def fill(root: Path) -> None:
    """Make what git has, what it has not yet, what it does not know, and what it ignores."""

    def git(*words: str) -> bytes:
        line = ["git", "-c", "user.name=n", "-c", "user.email=e", *words]
        return subprocess.run(line, cwd=root, check=True, capture_output=True).stdout

    git("init", "-q")
    _write(root, _FILES)
    git("add", ".")
    git("commit", "-qm", "one")
    (root / "src" / "deep" / "other.py").write_text("other = 2\n")
    git("commit", "-qam", "two")
    _write(root, _LATER)
    git("add", "README.md")
    (root / "last.patch").write_bytes(git("diff", "HEAD"))
    with sqlite3.connect(root / "data" / "base.db") as base:
        base.execute("CREATE TABLE users(name)")
        base.executemany("INSERT INTO users VALUES (?)", [(f"user {n}",) for n in range(500)])
    base.close()
    (root / "data" / "now").symlink_to("base.db")
    (root / "current").symlink_to("data")
    (root / "photos" / "1.jpg").chmod(0o600)
    (root / "drafts" / "old").chmod(0o750)
    with tarfile.open(root / "backup.tar", "w") as tar:
        tar.add(root / "backup" / "main.py", "src/main.py")
        tar.add(root / "backup" / "main.py", "data/uploads/one.bin")
    with zipfile.ZipFile(root / "backup.zip", "w") as archive:
        archive.write(root / "backup" / "main.py", "src/main.py")
        archive.write(root / "backup" / "main.py", "notes.txt")


def is_possible(line: str) -> bool:
    """Whether its program is on this machine."""
    program = line.split()[0]
    return not program.isalpha() or program in _OF_THE_SHELL or shutil.which(program) is not None


_OF_THE_SHELL = ("cd", "for", "shopt", "grep")


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
