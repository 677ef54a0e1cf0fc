"""Words with which ordinary programs run others, load code, or read and write files of a choice.

Each entry has programs, a colon, and patterns. One meets the beginning of a word, together with
the next one behind an option (`\\x20` is the blank between them); a last `$` ends the word. A rule
must name such a word and all that stands before it; no wildcard stands for it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

_RISKY = r"""
cc gcc g++ c++ clang clang++ ld gold lld ar as: @ -wrapper --?fplugin -?-specs -B -fuse-ld
  -Xlinker -Xclang -Xassembler -Xpreprocessor -Wl,.*(plugin|dynamic-linker|@) -load --?plugin
  --config
rustc: @ -C\x20?link(er|-arg) --codegen -Z
javac java: @ -javaagent -agentlib -agentpath -J --?processor -XX:On -XX:Flags -Xbootclasspath
pytest py.test: -p(?!\x20?no:) --rootdir --basetemp -c --config-file -o --override-ini --log-file
  --junit-?xml[=\x20](/|~|.*\.\.) --confcutdir --pastebin
make gmake: -[a-zA-Z]*f --f --m -[a-zA-Z]*I --inc -[a-zA-Z]*E --ev .*[$`;|&<>(]
  -[a-zA-Z]*C\x20?(/|~|.*\.\.) --d.*[=\x20](/|~|.*\.\.) \w*[^=\w][^=]*=
  (SHELL|\w*MAKE\w*|CC|CXX|CPP|LD|AR|AS|RM|PYTHON\w*|\w*FLAGS|INSTALL)\W?= \w+=.*[^\w.,:+-]
ninja: -f -t -C\x20?(/|~|.*\.\.)
cmake: -P -C -E --toolchain -D.*(LAUNCHER|PROGRAM|COMPILER|_INCLUDE) --build.*\.\.
npm npx pnpm yarn bunx: -c$ -c= --call --script-shell --shell --prefix --dir$ --cwd --userconfig
  --globalconfig --node-options --git= --git$ --editor --viewer --browser --init-module
  --modules-folder -C$ -C[/.~] --use-yarnrc --yarn-path --use-node --pnpmfile --global-pnpmfile
npm pnpm yarn: exec$ x$ dlx$ explore$ edit$ config$ c$ set$
pip pip3: -t --tar --pref --roo --py --lo --rep -d$ --des -w$ --wh --sr --cac --glo --bui --conf
uv: -t --target --prefix --root --python[=\x20].*[/~] --cache-dir --config
install ginstall: --strip-p
uv poetry pipenv hatch pdm rye conda mamba micromamba mise direnv pixi devbox nix asdf rbenv pyenv
  rustup volta bundle: run$ exec$ x$ tool$ develop$ shell$ --command -c$
cargo: --config -Z --manifest-path.*[=\x20](/|~|.*\.\.) --target-dir -C --root \+
  --path[=\x20](/|~|.*\.\.)
go: --?exec --?toolexec --?vettool --?overlay --?modfile --?ldflags.*ext --?gccgoflags --?compiler
  --?pkgdir --?C[=\x20] --?o[=\x20](/|~|.*\.\.) generate$ tool$ -w$
docker podman nerdctl: --volumes-from --ipc --cap-add --security-opt --userns --env-file
  --net(work)?[=\x20]host --secret --ssh --tls --context cp$ --runtime --group-add context$ plugin$
curl: -[#0-9aBfgGhiIjJkLlMnNpqRsSvVZ:]*[KoOTcDxE] --engine --stderr --libcurl --etag --hsts
  --alt-svc --abstract-unix --capath --variable --expand --netrc-file --proxy --preproxy --socks
  .*%(output|header)\{ -[a-zA-Z]*[wdH]\x20?@
  --(write-out|json|header|url-query|proxy-header)[=\x20]@
  --da[a-z-]*[=\x20]([^\s=]*@|[^\s=]*=@) -[a-zA-Z]*F\x20?[^=]*=.*[@<] --fo[a-z]*[=\x20].*[@<]
  --cert --key (?is:.*file:) [^\s"/{\[]*[{\[][^\s"/]*:
wget: -[a-zA-Z]*[aPF] --ap --dir --sav --loa --war --rej --hsts-f --private-k --cert --bas
  --force-h
jq gojq yq: -[a-zA-Z]*[fL] --from-file --library-path -i --in-place
  (?s:.*)(?<![.\w])(env|import|include|input_filename|load|load_str|strload|eval|\$ENV)\b
ssh: -[46AaCfGgKkMNnqsTtVvXxYy]*[ILRDWwAXYJ]
scp sftp: -F -b -J
rsync: --daemon --config --(read|only-write|write)-batch --log-file --password-file --.*-from
  --temp-dir -T --backup-dir --partial-dir --.*-dest --copy-as
split csplit gsplit: --f
less more most: \+ -[a-zA-Z]*[oOkT] --lo --LO --lessk --ta
man: -C --conf -p --pre --loc -l
ps: (?!-)[a-zA-Z]*e[a-zA-Z]*$ .*environ
patch: -[a-zA-Z]*[deroB] --o --dir --ed --rej --pref -Y -z --suf
xxd: -[a-z]*r
zip: -b -lf -la --temp-path --log
7z 7za 7zr: @ -o -w -i.*@ -x.*@
tar bsdtar gtar: --lis --abs -[a-zA-Z]*[gPX] --exclude-f --add-f --vol --ind --tra.*e$ --xf.*e$ @
  [^/\s-][^/\s]*: (-[a-zA-Z]*f|--fil[a-z]*=?)\x20?[^/\s]+:
shuf: -[a-zA-Z]*o --o --ra
time: -o --o
strings objdump nm readelf size addr2line: @ --?plugin
openssl: -engine -provider -config -writerand engine$
sqlite3: --?init --?cmd \.[a-z] (?is:.*(load_extension|writefile|readfile|edit\s*\())
  (?s:.*\n[\x20\t]*\.)
psql: -f -o -L --file --output --log-file (?s:.*\\[!cogiw]) (?is:.*\bprogram\b)
mysql mariadb: --init-command --pager --tee (?is:.*\bsystem\b) (?is:.*\b(source|tee|pager|edit)\b)
  (?s:.*\\[!TPe.])
mvn gradle gradlew: -D.*(exec|agent) -I --init-script -s$ --settings -gs -b --include-build -g
  --gradle-user-home
eslint prettier webpack vite jest vitest mocha stylelint babel: -c$ --config --rulesdir
  --resolve-plugins --plugin --parser$ --parser= -r --require --import --loader --globalSetup
  --setupFiles --transform --runner --testRunner --node-option --outputFile --output-file -o$
ruff: --config --output-file -o --cache-dir
mypy: --config-file --python-executable --install-types --.*-report --cache-dir --junit-xml
pylint flake8: --rcfile --load-plugins --init-hook --config --append-config --output
tox nox: -c -f --noxfile -x --workdir --override --result-json
terraform tofu: -chdir -plugin-dir -backend-config console$
kubectl helm: --kubeconfig --post-renderer edit$ plugin$
gh: alias$ extension$ extensions$ ext$
"""

_RUNNERS = """
su ltrace unshare nsenter chroot entr script systemd-run runuser pkexec busybox toybox at batch
crontab expect gdb lldb valgrind perf screen tmux xvfb-run dbus-run-session proxychains fakeroot
faketime firejail bwrap prlimit numactl setpriv capsh choom setarch linux32 linux64 rlwrap
unbuffer dtach sshpass tini dumb-init gosu start-stop-daemon run-parts vi vim nvim view vimdiff
ex ed emacs nano cpulimit hyperfine daemonize ssh-agent watchexec nodemon caffeinate arch
"""
_RUNS_ANYTHING = frozenset(_RUNNERS.split())
"""What they are given is another program, or commands of their own: a rule names every word."""

_WRITES_SECOND = frozenset({"uniq", "xxd"})
"""The second file that they are given is written."""

_MAX_LENGTH = 20_000
"""Of two words that are looked at; longer ones must be named."""

_VERSION = re.compile(r"-?[0-9.]+\Z")


def risky_words(program: str, words: Sequence[str]) -> Iterator[int]:
    """How many words a rule must name for each that lets a program do more than its own work."""
    if program in _RUNS_ANYTHING:
        yield len(words)
    if program in _WRITES_SECOND:
        files = [index for index in range(1, len(words)) if not words[index].startswith("-")]
        yield from (index + 1 for index in files[1:])
    pattern = _patterns().get(program) or _patterns().get(_VERSION.sub("", program))
    for index in range(1, len(words) if pattern else 0):
        text = " ".join(words[index : index + 1 + words[index].startswith("-")])
        if pattern and (len(text) > _MAX_LENGTH or pattern.match(text)):
            yield index + 1


@lru_cache(maxsize=1)
def _patterns() -> dict[str, re.Pattern[str]]:
    table: dict[str, list[str]] = {}
    for entry in _RISKY.replace("\n  ", " ").strip().split("\n"):
        names, _, patterns = entry.partition(": ")
        for name in names.split():
            table.setdefault(name, []).extend(_ended(text) for text in patterns.split())
    return {name: re.compile("|".join(patterns)) for name, patterns in table.items()}


def _ended(pattern: str) -> str:
    return f"(?:{pattern[:-1]}(?!\\S))" if pattern.endswith("$") else f"(?:{pattern})"
