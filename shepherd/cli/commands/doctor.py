"""`shepherd doctor`: tests the installation, and advises how to fix problems."""

import asyncio
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, structs

from shepherd import errors, own_programs
from shepherd.backends.opening import SCRIPT_PREFIX
from shepherd.catalog.model_files import GIB
from shepherd.cli.commands.arguments import Json, with_option_groups
from shepherd.cli.commands.models.fit import plan_of, run_model
from shepherd.cli.request import overrides_of
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config import provider_book, section, settings
from shepherd.config.load import load_config
from shepherd.config.paths import Paths, project_file, project_mcp_files
from shepherd.config.provider import LOCAL, PROVIDER_TYPES, Provider, missing_type
from shepherd.conversation.model_choice import model_from_user, override_model
from shepherd.conversation.toolbox import build_policy, layer_places
from shepherd.models import BUILTIN_NAME
from shepherd.plugins import PluginError, installed_plugins
from shepherd.tools.layer.layer import find_place
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.sandbox import Finding, find_box
from shepherd.version import __version__

_WIDTH = 12
_WRITABLE = os.W_OK | os.X_OK
_ANSWER_SECONDS = 5.0
"""The longest wait for a server."""
_GPUS = (
    ("nvidia[0-9]*", "A GPU of NVIDIA", "cuda"),
    ("kfd", "A GPU of AMD", "rocm"),
    ("dri/renderD*", "A GPU", "vulkan"),
)
"""The files of drivers, and which build of llama.cpp uses their GPU."""


class State(StrEnum):
    """The result of a check; only BROKEN prevents Shepherd from working with these settings."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


class Check(Struct, frozen=True):
    """The result of one check: `text` says what there is, `advice` what could be done."""

    name: str
    state: State
    text: str
    advice: tuple[str, ...] = ()


class DoctorOptions(Struct, frozen=True, kw_only=True):
    """What `doctor` does beside the usual checks."""

    offline: bool = False
    """Count what a day of work tries to connect to, in a network of its own."""
    model: Annotated[str | None, typer.Option(metavar="FILE")] = None
    """Load this model, and run it."""


@with_option_groups
def doctor(context: typer.Context, options: DoctorOptions, *, as_json: Json = False) -> None:
    """Test what works here, and advise what to install or change.

    Ends with 1 if something is broken that Shepherd needs. Nothing goes over the network, except
    one request to each server of a provider that has several, to each RPC worker, and to the
    database.
    """
    if options.offline and not sys.platform.startswith("linux"):
        raise errors.ToolError("--offline needs the namespaces of Linux; nothing was measured.")
    if options.offline:
        from shepherd.cli.commands.offline.day import check_offline

        raise typer.Exit(1 if check_offline() else 0)
    overrides, model = dict(overrides_of(context)), options.model
    if model is not None:
        overrides |= override_model(LOCAL, model_from_user(model, Path.cwd()))
    checks = check_all(Path.cwd(), os.environ, overrides)
    if model is not None and not any(check.state is State.BROKEN for check in checks):
        checks.append(_run(load_config(Path.cwd(), os.environ, overrides)))
    broken = [check.name for check in checks if check.state is State.BROKEN]
    if as_json:
        result = {"ok": not broken, "checks": [structs.asdict(check) for check in checks]}
        typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
    else:
        for check in checks:
            typer.echo(_lines(check))
        typer.echo(f"Broken: {', '.join(broken)}." if broken else "All that Shepherd needs works.")
    raise typer.Exit(1 if broken else 0)


def _lines(check: Check) -> str:
    """`sandbox      ok      bubblewrap`, and advice below it."""
    head = f"{check.name:<{_WIDTH}} {check.state.value:<7} "
    advice = [f"→ {sanitize(sentence)}" for sentence in check.advice]
    lines = [*sanitize(check.text).splitlines(), *advice]
    return head + ("\n" + " " * len(head)).join(lines)


def check_all(cwd: Path, env: Mapping[str, str], overrides: Mapping[str, object]) -> list[Check]:
    """All checks, for the settings in `cwd`; takes about a second."""
    paths = Paths.from_env(env)
    problem = ""
    try:
        config = load_config(cwd, env, overrides)
    except errors.ConfigError as error:  # the other checks use the defaults
        config, problem = settings.Config(), str(error)
    finding = find_box()
    # with a provider, the settings work without a model in this process
    model_state = State.NOTE if config.model.provider else State.BROKEN
    return [
        Check("shepherd", State.OK, f"{__version__} on {platform.platform(terse=True)}"),
        Check("python", State.OK, f"{platform.python_version()} at {sys.executable}"),
        _settings(config, paths, cwd, problem),
        _directories(paths),
        check_sandbox(config.tools.sandbox, finding),
        *_layer(config.tools.sandbox, finding, paths, cwd),
        check_llamacpp(model_state),
        _try("model", partial(_model_file, config), model_state),
        *_workers(config, model_state),
        *_database(config, env),
        *_providers(paths, env),
        *_servers(config, paths, cwd),
        *_plugins(config),
        _terminal(env),
        _programs(),
        _keyring(),
    ]


def _settings(config: settings.Config, paths: Paths, cwd: Path, problem: str) -> Check:
    """The files of settings; `problem` is why they could not be read, or ""."""
    files = [path for path in (paths.user_file, project_file(cwd)) if path and path.is_file()]
    text = ", ".join(map(str, files)) or "none; the defaults count"
    if not problem:
        try:  # the rules in the settings are read only here
            build_policy(config, paths, cwd)
        except errors.ShepherdError as error:
            problem = str(error)
    if problem:
        return Check("settings", State.BROKEN, problem)
    state = State.NOTE if config.warnings else State.OK
    return Check("settings", state, text, config.warnings)


def _directories(paths: Paths) -> Check:
    """Whether the user's directories can be written."""
    places = (paths.config, paths.state, paths.data, paths.cache)
    existing = {place: _existing(place) for place in places}  # where one would be made, or it is
    closed = [str(p) for p, e in existing.items() if not (e.is_dir() and os.access(e, _WRITABLE))]
    if not closed:
        return Check("directories", State.OK, ", ".join(map(str, places)))
    advice = "Make them writable, or name others with XDG_CONFIG_HOME and the like."
    return Check("directories", State.BROKEN, f"can't write to {', '.join(closed)}", (advice,))


def _existing(place: Path) -> Path:
    """The place, or the nearest directory above it that exists."""
    return next(path for path in (place, *place.parents) if path.exists())


def check_sandbox(mode: section.SandboxMode, finding: Finding) -> Check:
    """What `finding` means for commands in this mode."""
    advice = tuple(
        f"{attempt.name}: {'; '.join(filter(None, (attempt.reason, attempt.advice)))}"
        for attempt in finding.tried
        if not attempt.ok
    )
    if finding.box is None:
        state = State.BROKEN if mode is section.SandboxMode.REQUIRED else State.NOTE
        return Check("sandbox", state, "none works: commands run without one", advice)
    if mode is section.SandboxMode.OFF:
        text = f"{finding.box.name} would hold, but the settings switch it off (tools.sandbox)"
        return Check("sandbox", State.NOTE, text, advice)
    return Check("sandbox", State.OK, f"{finding.box.name}, tried and held", advice)


def _layer(mode: section.SandboxMode, finding: Finding, paths: Paths, cwd: Path) -> list[Check]:
    """Whether commands in this directory work in a layer; nothing to say without a sandbox."""
    if finding.box is None or mode is section.SandboxMode.OFF:
        return []
    root = cwd.resolve()
    places = map(_existing, layer_places(paths))  # what it would make, it must not leave behind
    if find_place(finding.box, Profile(root, root, Path.home()), places) is not None:
        return [Check("layer", State.OK, f"{root}: what commands change is kept for /undo in full")]
    text = f"none works over {root}: commands change files as they go"
    return [Check("layer", State.NOTE, text, (f"{finding.box.name} or the file system has none.",))]


def _try(name: str, check: Callable[[], str], if_it_fails: State) -> Check:
    """The text that `check` returns, or its error as a problem of the state `if_it_fails`."""
    try:
        return Check(name, State.OK, check())
    except (errors.ShepherdError, OSError) as error:
        return Check(name, if_it_fails, str(error))


def check_llamacpp(broken: State, drivers: Path = Path("/dev")) -> Check:
    """The version of llama.cpp and its GPUs, or why it does not use one that is here."""
    from shepherd.backends.llamacpp.native.bindings import bindings
    from shepherd.backends.llamacpp.native.devices import gpus, has_gpu

    try:
        folder = Path(bindings().__file__).parent / "lib"
    except errors.ShepherdError as error:
        return Check("llama.cpp", broken, str(error))
    version = f"llama-cpp-python {importlib.metadata.version('llama-cpp-python')}"
    if has_gpu():
        devices = ", ".join(
            f"{device.name} ({device.description}, {device.free / GIB:.1f} of "
            f"{device.total / GIB:.1f} GiB free)"
            for device in gpus()
        )
        return Check("llama.cpp", State.OK, f"{version}, built with a GPU: {devices or 'unknown'}")
    for build in ("cuda", "hip", "vulkan"):
        if next(folder.glob(f"*ggml-{build}.*"), None):
            advice = (
                "See whether its driver is loaded, and whether this user or container may use it."
            )
            text = f"{version}, built with {build}, but it finds no GPU"
            return Check("llama.cpp", State.NOTE, text, (advice,))
    text = f"{version}, built for the CPU only"
    for pattern, gpu, build in _GPUS:
        if file := next(drivers.glob(pattern), None):
            advice = f"{gpu} ({file}) is not used: see `make chat GPU={build}` in docs/install.md."
            return Check("llama.cpp", State.NOTE, text, (advice,))
    return Check("llama.cpp", State.OK, text)


def _workers(config: settings.Config, broken: State) -> Iterator[Check]:
    """Each RPC worker of the settings, asked for its devices."""
    if not config.llamacpp.rpc_servers:
        return
    from shepherd.backends.llamacpp.rpc.protocol import Address, parse_addresses, probe
    from shepherd.backends.llamacpp.rpc.workers import rpc_library

    try:
        rpc_library()  # raises an error if this build of llama.cpp has none
        addresses = parse_addresses(config.llamacpp.rpc_servers)
    except errors.ShepherdError as error:
        yield Check("rpc", broken, str(error))
        return

    def devices(address: Address) -> str:
        sizes = (f"{d.free / GIB:.1f} of {d.total / GIB:.1f}" for d in probe(address).devices)
        return f"{address} ({', '.join(f'{size} GiB free' for size in sizes)})"

    for address in addresses:
        yield _try("rpc", partial(devices, address), broken)


def _database(config: settings.Config, env: Mapping[str, str]) -> Iterator[Check]:
    """The database of the settings, if they have one, after a connection to it."""
    if not config.server.database:
        return
    from shepherd.cli.serve.database import required_database  # imports FastAPI

    def answer() -> str:
        required_database(config, env).check()
        return f"{config.server.database} answers"

    yield _try("database", answer, State.BROKEN)


def _model_file(config: settings.Config) -> str:
    """The model in the settings; raises ModelLoadError if it can't be one."""
    name = config.model.name
    if name.startswith(SCRIPT_PREFIX):  # scripted answers, which need no model
        return name
    plan = plan_of(config)
    if plan.fit.is_hopeless:
        raise errors.ModelLoadError(plan.fit.shortage)
    loads = plan.fit.shortage or f"loads with {plan.fit.text}"
    size = f"{plan.path.stat().st_size / 1e6:,.1f} MB, {loads}"
    if plan.choice.projector is not None or plan.choice.notice:
        size = f"{size}, images: {plan.choice.text}"
    is_builtin = name in ("", BUILTIN_NAME)
    return f"built-in ({BUILTIN_NAME}), {size}" if is_builtin else f"{plan.path}, {size}"


def _run(config: settings.Config) -> Check:
    """The model, loaded and run; what it says about itself makes a note."""
    try:
        text, notices = asyncio.run(run_model(config))
    except errors.ShepherdError as error:
        return Check("run", State.BROKEN, str(error))
    return Check("run", State.NOTE if notices else State.OK, text, tuple(notices))


def _providers(paths: Paths, env: Mapping[str, str]) -> Iterator[Check]:
    """Each provider, and each of its servers if it has several."""
    book = provider_book.ProviderBook(paths, env)
    try:
        providers = book.all()
    except errors.ShepherdError as error:
        yield Check("providers", State.BROKEN, str(error))
        return
    if not providers:
        yield Check("providers", State.OK, "none configured")
    for provider in providers:
        check = _provider(book, provider)
        yield check
        opens_window = provider.api_key == "keyring"  # a keyring may ask for its password
        is_usable = check.state is State.OK and not opens_window
        # the request that tests a server is known for the types of Shepherd alone
        if len(provider.urls) > 1 and is_usable and provider.type in PROVIDER_TYPES:
            yield from asyncio.run(_upstreams(book, provider))


def _provider(book: provider_book.ProviderBook, provider: Provider) -> Check:
    """The type, the model and the key of a provider, without a request to it."""
    text = f"{provider.name}: {provider.type}, {provider.model or 'no model'}"
    if problem := missing_type(provider):
        return Check("provider", State.NOTE, text, (problem,))
    if provider.api_key == "keyring":  # reading it may open a window
        return Check("provider", State.OK, f"{text}; its key is in the keyring")
    try:
        secret = book.key(provider)
    except errors.ShepherdError as error:
        return Check("provider", State.NOTE, text, (str(error),))
    return Check("provider", State.OK, f"{text}; {'has a key' if secret.value else 'no key'}")


async def _upstreams(book: provider_book.ProviderBook, provider: Provider) -> list[Check]:
    """One check for each of several servers; the others take the requests of a silent one."""
    return await asyncio.gather(*(_upstream(book, provider, url) for url in provider.urls))


async def _upstream(book: provider_book.ProviderBook, provider: Provider, url: str) -> Check:
    """Whether a server answers one request for its models."""
    from shepherd.backends.connect import check_answer  # imports an HTTP client

    problem = f"It gave no answer in {_ANSWER_SECONDS:.0f} s."
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await check_answer(provider.at(url), book)
    except TimeoutError:
        pass
    except errors.ShepherdError as error:
        problem = str(error)
    else:
        return Check("upstream", State.OK, f"{provider.name}: {url} answers")
    text = f"{provider.name}: {url} does not answer"
    return Check("upstream", State.NOTE, text, (problem,))


def _servers(config: settings.Config, paths: Paths, cwd: Path) -> Iterator[Check]:
    """The MCP servers, which are not started."""
    if not config.mcp.enabled or not (paths.mcp_file.exists() or project_mcp_files(cwd)):
        return
    from shepherd.cli.commands.mcp import summaries

    problems: list[str] = []
    lines = summaries(paths, cwd, problems.append)
    text = "\n".join(lines) or "none can be used"
    advice = [*problems, "`shepherd mcp test NAME` starts one"]
    yield Check("mcp", State.NOTE if problems else State.OK, text, tuple(advice))


def _plugins(config: settings.Config) -> Iterator[Check]:
    """Each package's plugins, loaded; a failed or disabled one is a note."""
    packages = groupby(installed_plugins(), lambda plugin: (plugin.package, plugin.version))
    for (package, version), plugins in packages:
        failures: list[str] = []
        described: list[str] = []
        for plugin in plugins:
            remark = ""
            if plugin.is_in(config.plugins.disabled):
                remark = " (switched off: plugins.disabled)"
            else:
                try:
                    plugin.load()
                except PluginError as error:
                    remark = " (fails)"
                    failures.append(str(error))
            described.append(f"{plugin.group.removeprefix('shepherd.')} {plugin.name}{remark}")
        state = State.NOTE if failures else State.OK
        yield Check("plugin", state, f"{package} {version}: {', '.join(described)}", (*failures,))


def _terminal(env: Mapping[str, str]) -> Check:
    """The kind and the encoding of the terminal; it is a note if it shows plain lines only."""
    if not sys.stdout.isatty():
        return Check("terminal", State.OK, "the output is not a terminal")
    term, encoding = env.get("TERM", ""), sys.stdout.encoding
    text = f"TERM={term or 'unset'}, {encoding}, {shutil.get_terminal_size().columns} columns"
    is_plain = term in ("", "dumb") or "utf" not in encoding.lower()
    return Check("terminal", State.NOTE if is_plain else State.OK, text)


def _programs() -> Check:
    """The programs that Shepherd itself runs, if they are there."""
    programs = {name: own_programs.own_program(name) for name in ("bash", "git")}
    programs["rg"] = own_programs.packaged_program("rg")  # it comes with a package of Python
    text = ", ".join(f"{name} {path or 'missing'}" for name, path in programs.items())
    advice: list[str] = []
    if not programs["rg"]:
        advice.append("Install Shepherd again, or ripgrep (rg): grep and glob need it.")
    if not programs["bash"]:
        advice.append("Install bash: commands run in sh without it.")
    return Check("programs", State.NOTE if advice else State.OK, text, tuple(advice))


def _keyring() -> Check:
    """The keyring of the system, by the module that speaks to it."""
    try:
        import keyring

        name = type(keyring.get_keyring()).__module__
    except (ImportError, RuntimeError) as error:
        return Check("keyring", State.NOTE, f"can't be used: {error}")
    if name.endswith((".fail", ".null")):  # what the package uses where there is none
        text = "none; keys of providers can be kept in a private file"
        return Check("keyring", State.NOTE, text)
    return Check("keyring", State.OK, name)
