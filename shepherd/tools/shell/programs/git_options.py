"""The options of git's subcommands that are known to be harmless.

Options that write any file, run a program or read untracked files are not listed.
"""

from dataclasses import dataclass
from functools import lru_cache

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


@dataclass(frozen=True, slots=True)
class Subcommand:
    """The options of a subcommand: short flags, short options with a value, long options."""

    flags: str
    values: str
    longs: frozenset[str]

    def knows(self, option: str) -> bool:
        """Whether the option, or each of a cluster, is known; a long one must be in full."""
        if option.startswith("--"):
            return option[2:].partition("=")[0] in self.longs
        for char in option[1:]:
            if char in self.values:
                return True
            if char not in self.flags and not (char.isdigit() and "#" in self.flags):
                return False
        return True


def subcommand(name: str) -> Subcommand | None:
    """The subcommand of that name; None if it is unknown, such as an alias."""
    return _subcommands().get(name)


@lru_cache(maxsize=1)
def _subcommands() -> dict[str, Subcommand]:
    groups = {"REVISIONS": _REVISIONS, "DIFFS": _DIFFS, "MERGES": _MERGES}
    table: dict[str, Subcommand] = {}
    for entry in _TABLE.replace("\n  ", " ").strip().split("\n"):
        name, _, rest = entry.partition(": ")
        flags, values, *longs = rest.split()
        names = " ".join([_COMMON, *(groups.get(long, long) for long in longs)])
        table[name] = Subcommand(flags[1:], values[1:], frozenset(names.split()))
    return table
