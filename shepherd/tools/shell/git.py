"""The risky words of a git command, and the directories in which it runs."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from shepherd.tools.access import Access, AccessKind, Claim

_COMMON = """
color color-moved color-words no-color quiet verbose word-diff
"""
_REVISIONS = """
abbrev-commit after all all-match ancestry-path author author-date-order before boundary
branches cc cherry cherry-pick children committer count date date-order decorate diff-merges
exclude extended-regexp first-parent fixed-strings follow format full-history glob graph grep
invert-grep left-only left-right max-count max-parents merge merges min-parents no-abbrev-commit
no-decorate no-merges no-notes no-walk not notes oneline parents perl-regexp pretty reflog
regexp-ignore-case relative-date remerge-diff remotes reverse right-only show-signature
simplify-by-decoration since skip source tags topo-order until walk-reflogs
"""
_DIFFS = """
abbrev binary break-rewrites cached check color-moved-ws compact-summary diff-algorithm
diff-filter dirstat dst-prefix exit-code find-copies find-copies-harder find-renames full-index
function-context histogram ignore-all-space ignore-blank-lines ignore-cr-at-eol
ignore-matching-lines ignore-space-at-eol ignore-space-change ignore-submodules indent-heuristic
inter-hunk-context irreversible-delete ita-visible-in-index merge-base minimal name-only
name-status no-color-moved no-ext-diff no-indent-heuristic no-patch no-prefix no-relative
no-renames no-textconv numstat patch patch-with-raw patch-with-stat patience pickaxe-all
pickaxe-regex raw relative shortstat src-prefix staged stat submodule summary text unified
word-diff-regex ws-error-highlight
"""
_MERGES = """
abort allow-unrelated-histories autostash commit continue ff ff-only gpg-sign log message
no-autostash no-commit no-edit no-ff no-gpg-sign no-progress no-signoff no-squash no-stat
no-verify progress quit rerere-autoupdate signoff squash stat verify
"""
_TABLE = """
add: -AuvnN - all chmod dry-run ignore-errors ignore-removal intent-to-add no-all refresh sparse
  update
bisect: - -
blame: -bltfnsewpcM#C -LS abbrev date first-parent ignore-rev incremental line-porcelain
  porcelain root show-email show-name show-number show-stats since
branch: -avdDmMcCrlfqi -ut abbrev all column contains copy create-reflog delete force format
  ignore-case list merged move no-contains no-merged no-track points-at remotes set-upstream-to
  show-current sort track unset-upstream
cat-file: -tsep -
check-attr: -az - all
check-ignore: -qvnz - no-index non-matching
check-ref-format: - - branch
checkout: -qtfldm -bB detach force guess ignore-skip-worktree-bits merge no-guess no-overlay
  no-progress no-track orphan ours overlay progress theirs track
cherry: -v - abbrev
cherry-pick: -nxsSe# -mX MERGES allow-empty keep-redundant-commits mainline
clean: -dfnqxX -e dry-run exclude force
clone: -vqnls46 -bjo also-filter-submodules bare branch depth filter jobs mirror no-checkout
  no-local no-single-branch no-tags origin progress shallow-since single-branch sparse
commit: -avqsnzSeop# -mFtCcu all allow-empty allow-empty-message amend author branch cleanup
  date dry-run edit file fixup gpg-sign include message no-edit no-gpg-sign no-post-rewrite
  no-signoff no-status no-verify only porcelain reedit-message reset-author reuse-message short
  signoff squash status template trailer untracked-files verify
config: -lz - bool get get-all get-regexp global int list local name-only null show-origin
  show-scope type
count-objects: -vH - human-readable
describe: - - abbrev all always broken candidates contains dirty exact-match exclude
  first-parent long match tags
diff: -puswbamzrtcRWMCDBi#vq -USGlX DIFFS
diff-tree: -puswbamzrtcRWMCDBi#vgqEFP -nUSGLlX REVISIONS DIFFS
fetch: -aptnfvqk46 -j all atomic deepen depth dry-run force jobs no-prune no-tags progress prune
  prune-tags tags unshallow
for-each-ref: - - contains count format ignore-case merged no-contains no-merged points-at sort
fsck: -v - dangling full lost-found no-dangling no-progress progress strict unreachable
gc: -q - aggressive auto force no-prune prune
grep: -viwhHlLnczoEGFPqapI#W -eABCmf after-context all-match and basic-regexp before-context
  break cached column context count extended-regexp files-with-matches files-without-match
  fixed-strings full-name function-context heading ignore-case invert-match line-number max-depth
  not null only-matching or perl-regexp show-function text threads word-regexp
help: -ag - all guides
init: -q -b bare initial-branch
log: -puswbamzrtcRWMCDBi#vgqEFP -nUSGLlX REVISIONS DIFFS
ls-files: -cdmosuktvzfi -xX abbrev cached debug deduplicate deleted directory eol error-unmatch
  exclude exclude-standard full-name ignored killed modified no-empty-directory others
  recurse-submodules stage unmerged
ls-remote: -htq - branches exit-code get-url heads refs symref tags
ls-tree: -drtlz - abbrev format full-name full-tree long name-only name-status object-only
merge: -nqve -mX MERGES
merge-base: -a - all fork-point independent is-ancestor octopus
mv: -fknv - dry-run force
name-rev: - - all always name-only refs tags
notes: - -m message
pull: -rpnvqft46 -j MERGES all atomic deepen depth dry-run force jobs no-prune no-rebase no-tags
  prune prune-tags rebase tags unshallow
push: -udfnqv46 - all atomic delete dry-run follow-tags force force-if-includes force-with-lease
  no-follow-tags no-force-with-lease no-verify porcelain progress prune set-upstream tags
range-diff: - - DIFFS
rebase: -qvnfr -CX abort apply autosquash autostash committer-date-is-author-date continue empty
  fork-point keep-base keep-empty merge no-autosquash no-autostash no-fork-point no-keep-empty
  no-rebase-merges no-stat no-update-refs no-verify onto quit rebase-merges reset-author-date root
  signoff skip stat update-refs verify
reflog: -puswbamzrtcRWMCDBi#vgqEFP -nUSGLlX REVISIONS DIFFS
remote: -v - all dry-run prune push
reset: -qN - hard intent-to-add keep merge mixed no-refresh refresh soft
restore: -qSWm -s merge no-overlay no-progress ours overlay progress source staged theirs
  worktree
rev-list: -g -n REVISIONS disk-usage no-object-names objects
rev-parse: -q - abbrev-ref absolute-git-dir all branches flags git-common-dir git-dir git-path
  is-bare-repository is-inside-git-dir is-inside-work-tree is-shallow-repository no-flags remotes
  revs-only short show-cdup show-prefix show-toplevel sq-quote symbolic symbolic-full-name tags
  verify
revert: -nsSe# -mX MERGES mainline
rm: -rfnq - cached dry-run force ignore-unmatch recursive
shortlog: -nsec -w REVISIONS email numbered summary
show: -puswbamzrtcRWMCDBi#vgqEFP -nUSGLlX REVISIONS DIFFS
show-ref: -dsq - dereference hash head heads tags verify
sparse-checkout: - -
stash: -qkS -m index keep-index message no-keep-index staged stat
status: -sbvz -u ahead-behind branch column find-renames ignore-submodules ignored long
  no-ahead-behind no-column no-renames null porcelain renames short show-stash untracked-files
submodule: -q - cached recursive
switch: -dtfmqg -cC create detach discard-changes force force-create guess
  ignore-other-worktrees merge no-guess no-progress no-track orphan progress track
tag: -lndaifsv# -mFu annotate cleanup column contains delete file force format ignore-case list
  merged message no-contains no-merged points-at sign sort verify
var: - -
version: - - build-options
whatchanged: -puswbamzrtcRWMCDBi#vgqEFP -nUSGLlX REVISIONS DIFFS
worktree: -vz - porcelain
"""
"""Name, short options, short options with a value (`#` is a number), groups and long options."""


class Options(Struct, frozen=True):
    """Known options: short flags, short options with a value, long options."""

    flags: str
    values: str
    longs: frozenset[str]

    @classmethod
    def parse(cls, words: Sequence[str]) -> "Options":
        """Read `-FLAGS -VALUES LONG…`."""
        flags, values, *longs = words
        return cls(flags[1:], values[1:], frozenset(longs))

    def knows(self, option: str) -> bool:
        """Whether the option, or each of a cluster, is known; a long one must be in full."""
        if option.startswith("--"):
            return option[2:].partition("=")[0] in self.longs
        for char in option[1:]:
            if char in self.values:
                return True  # what follows is its value
            if char not in self.flags and not (char.isdigit() and "#" in self.flags):
                return False
        return True


@lru_cache(maxsize=1)
def _subcommands() -> dict[str, Options]:
    """The options of each subcommand; an alias and an unknown one are not in it."""
    groups = {"REVISIONS": _REVISIONS, "DIFFS": _DIFFS, "MERGES": _MERGES}
    table: dict[str, Options] = {}
    for entry in _TABLE.replace("\n  ", " ").strip().split("\n"):
        name, _, rest = entry.partition(": ")
        flags, values, *longs = rest.split()
        names = " ".join([_COMMON, *(groups.get(long, long) for long in longs)])
        table[name] = Options.parse([flags, values, *names.split()])
    return table


_FLAGS = """
--no-pager -P -p --paginate --no-replace-objects --no-optional-locks --literal-pathspecs
--glob-pathspecs --noglob-pathspecs --icase-pathspecs --version -v --help -h --no-advice
--no-lazy-fetch
"""
_GLOBAL_FLAGS = frozenset(_FLAGS.split())
_VALUES = "-c -C --git-dir --work-tree --namespace --exec-path --config-env"
_GLOBAL_VALUES = frozenset(_VALUES.split())
_PLACES = ("-C", "--git-dir", "--work-tree")

_VERBS = {
    "stash": "push pop list show apply drop branch",
    "remote": "get-url",
    "worktree": "list prune",
    "submodule": "status summary",
    "bisect": "start good bad new old skip reset log next",
    "sparse-checkout": "list",
    "notes": "list show",
    "reflog": "show exists",
    "config": "list get",
}
"""The known first operands of subcommands with operations; a rule must name any other one."""

_REMOTE_COMMANDS = frozenset({"fetch", "pull", "push", "ls-remote"})
_OPERAND_COMMANDS = _REMOTE_COMMANDS | _VERBS.keys() | {"clone"}
"""The effect of these depends on their first operand, at any position."""

_REMOTE = re.compile(r"[A-Za-z0-9][\w.-]*")
_URL = re.compile(r"(?:https|ssh|git)://[\w.@:/~+-]+|[\w.-]+@[\w.-]+:[\w./~+-]+")
_OUTSIDE = re.compile(r"[/~]|(?:.*/)?\.\.(?:/|\Z)")
"""Paths outside of the repository; `git diff` compares them as plain files."""

_HARMLESS_BUILTINS = frozenset({"cd", "pwd", "true", "echo"})
_READING = frozenset(
    {"status", "log", "diff", "show", "blame", "grep", "describe", "shortlog", "ls-files"}
    | {"ls-tree", "rev-parse", "rev-list", "cat-file", "merge-base", "name-rev", "for-each-ref"}
    | {"check-ignore", "count-objects", "version", "help"}
)
_READING_LINES = frozenset({"branch", "branch -a", "branch -v", "branch -vv", "tag", "remote -v"})


def git_words_to_name(words: Sequence[str], exists: Callable[[str], bool]) -> int:
    """The number of a git command's words that a rule must name; 0 if none of them is risky.

    `exists` says whether a file has this name: git reads an unknown remote as a path.
    """
    start = _start_of_subcommand(words)
    risky_counts = [index + 1 for index in range(1, start) if not _is_harmless(words, index)]
    if start < len(words):
        risky_counts += _risky_words(words, start, exists)
    return max(risky_counts, default=0)


def git_places(words: Sequence[str], place: Path) -> list[Path]:
    """The directories in which a git command that starts in `place` may look for a repository."""
    places = [place]
    for index in range(1, _start_of_subcommand(words)):
        option, is_attached, value = words[index].partition("=")
        if option in _PLACES:
            value = value if is_attached else "".join(words[index + 1 : index + 2])
            places.append(places[-1] / value)  # a second `-C` is relative to the first
    # the directory where it starts counts only without such an option
    return places[1:] or places


def _start_of_subcommand(words: Sequence[str]) -> int:
    """The index of `log` in `git -C dir --no-pager log`; the number of words if there is none."""
    index = 1
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _GLOBAL_VALUES else 1
    return min(index, len(words))


def _is_harmless(words: Sequence[str], index: int) -> bool:
    """Whether a word before the subcommand is harmless; other code checks directories of `-C`."""
    return words[index] in _GLOBAL_FLAGS or "-C" in words[index - 1 : index + 1]


def _risky_words(words: Sequence[str], start: int, exists: Callable[[str], bool]) -> Iterator[int]:
    """The indices, from 1, of the words from the subcommand on that a rule must name."""
    name = words[start]
    options = _subcommands().get(name)
    if options is None:
        yield start + 1
        return
    operand_indices: list[int] = []
    for index in range(start + 1, len(words)):
        if words[index] == "--":
            if name in _OPERAND_COMMANDS:  # a verb or a remote may also come after it
                operand_indices += range(index + 1, len(words))
            break
        if not words[index].startswith("-") or words[index] == "-":
            operand_indices.append(index)
        elif not options.knows(words[index]):
            yield index + 1
    operands = [words[index] for index in operand_indices]
    lists_settings = any(word.startswith(("--get", "--list", "-l")) for word in words)
    if name == "config" and lists_settings:  # its operands only choose what is listed
        return
    if operands and not _are_known_operands(name, operands, exists):
        yield operand_indices[-1] + 1
    if name == "diff":
        paths = range(start + 1, len(words))
        yield from (index + 1 for index in paths if _OUTSIDE.match(words[index]))


def _are_known_operands(name: str, operands: list[str], exists: Callable[[str], bool]) -> bool:
    """Whether the first operand is a known verb or a remote's name, and no path of a repository.

    A push to a repository at a path runs its hooks.
    """
    if name in _VERBS:
        return operands[0] in _VERBS[name].split()
    if name == "clone":
        addresses = [operand for operand in operands if ":" in operand]
        is_plain = len(addresses) == 1 and _URL.fullmatch(addresses[0]) is not None
        return is_plain and not any(map(exists, operands))  # git prefers a directory of the name
    if name not in _REMOTE_COMMANDS:
        return True
    # a number may be the value of an option (`-j 4`), or a directory that is a remote
    if any(operand.isdigit() and exists(operand) for operand in operands):
        return False
    remotes = [operand for operand in operands if not operand.isdigit()][:1]
    return all(_REMOTE.fullmatch(remote) and not exists(remote) for remote in remotes)


def is_git_line(accesses: Sequence[Access]) -> bool:
    """Whether the call is parsed in full and runs only git and harmless builtins of the shell."""
    programs = [_words(access)[:1] for access in accesses if access.kind is AccessKind.SHELL]
    # what it reads does not matter: the question is whether it may write to the repository
    is_certain = all(
        access.claim is Claim.EXACT or access.kind is AccessKind.READ for access in accesses
    )
    writes = any(access.kind is AccessKind.WRITE for access in accesses)
    only_git = all(program and program[0] in {"git", *_HARMLESS_BUILTINS} for program in programs)
    return is_certain and not writes and only_git and ["git"] in programs


def changes_repository(accesses: Sequence[Access]) -> bool:
    """Whether the call is a git line that may change the repository."""
    return is_git_line(accesses) and not all(
        _only_reads(_words(access)) for access in accesses if access.kind is AccessKind.SHELL
    )


def _only_reads(words: Sequence[str]) -> bool:
    """Whether a git command is one that changes nothing; `git branch` does with a name."""
    if words[0] != "git":
        return True
    return (len(words) > 1 and words[1] in _READING) or " ".join(words[1:]) in _READING_LINES


def _words(access: Access) -> list[str]:
    """The words of a command; none if its quotes do not match."""
    try:
        return shlex.split(access.target)
    except ValueError:
        return []
