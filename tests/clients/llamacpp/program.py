"""A server that is started with the command line of `llama-server`."""

import argparse
import hashlib
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfile

import gguf

from shepherd.backends.base import Backend
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.embedding_backend import LlamaEmbeddingBackend
from shepherd.backends.llamacpp.embedding_engine import pooling_of
from shepherd.backends.opening import open_backend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.session_start import Notices
from shepherd.conversation.toolbox import Workspace, build_workspace
from shepherd.mcp.servers import Origin, ServerStore, make_server
from shepherd.models import builtin_model
from shepherd.sampling import Sampling
from shepherd.server.access.key import ApiKey, KeyScope
from shepherd.server.access.keys import KeyStore
from shepherd.server.app import Offer, create_app
from shepherd.server.listen import bind
from shepherd.server.pool.pool import ModelPool, open_pool
from shepherd.server.run import DrainingServer
from shepherd.server.settings import ServerSettings
from shepherd.session import Session
from tests.backends.llamacpp import embedders
from tests.backends.llamacpp.projectors import write_gemma_projector
from tests.backends.llamacpp.tiny import write_llama

ALL_TOOLS = Config.model_validate({"permissions": {"approve": "all"}})
MIN_CONTEXT = 256
EMBEDDED_TOKENS = 2048
ROUTED = (
    "ggml-org/tinygemma3-GGUF:Q8_0",
    "ggml-org/test-model-stories260K:F32",
    "ggml-org/test-model-stories260K-infill:F32",
)
"""The models of a server that has several; each is the built-in one here."""

INFILL = {"pre": 3, "suf": 4, "mid": 5}
"""Three control tokens of the small model as its infill tokens."""


def one_key(key: str, home: Path) -> KeyStore:
    """A key store with the key of the command line, which may do all."""
    store = KeyStore(home / f"{os.getpid()}.json")
    digest = hashlib.sha256(key.encode()).hexdigest()
    scopes = frozenset(KeyScope)
    store.insert([ApiKey("one", key[:4], digest, datetime.now(UTC), scopes=scopes)])
    return store


def parser() -> argparse.ArgumentParser:
    """The options that the tests use and this server can have; others are ignored."""
    options = argparse.ArgumentParser(allow_abbrev=False)
    for name, kind, default in (
        ("port", int, 8080),
        ("temp", float, 0.8),
        ("seed", int, None),
        ("ctx-size", int, 2048),
        ("parallel", int, 1),
        ("alias", str, "tinyllama-2"),
        ("n-predict", int, 0),
        ("api-key", str, None),
        ("batch-size", int, 0),
        ("ubatch-size", int, 0),
        ("cors-origins", str, None),
        ("tools", str, ""),
        ("mcp-servers-config", str, ""),
        ("mcp-servers-json", str, ""),
        ("models-max", int, 0),
        ("model-draft", str, ""),
        ("chat-template-file", str, None),
        ("pooling", str, None),
        ("reasoning", str, "off"),
        ("hf-repo", str, ""),
        ("slot-save-path", str, None),
        ("sleep-idle-seconds", int, -1),
    ):
        options.add_argument(f"--{name}", type=kind, default=default)
    for name in ("embedding", "reranking", "kv-unified", "jinja"):
        options.add_argument(f"--{name}", action="store_true")
    return options


async def run(arguments: list[str], models: Path) -> None:
    """Serve until a signal; `models` is the folder of the models that are written."""
    args, _ = parser().parse_known_args(arguments)
    origins: str = args.cors_origins or ("localhost" if args.tools else "*")
    settings = ServerSettings(
        port=args.port,
        max_tokens=max(args.n_predict, 0),
        thinking=args.reasoning in ("on", "auto"),
        insecure=True,
        cors_origins=origins.split(","),
        slots_folder=Path(args.slot_save_path) if args.slot_save_path else None,
    )
    keys = one_key(args.api_key, models) if args.api_key else None
    if args.sleep_idle_seconds > 0:
        served = await _sleeper(args, models)
    else:
        served = await _model(args, models) if args.hf_repo else await _router(args, models)
    tools = _workspace(args, models) if args.tools else None
    if tools is not None and tools.servers is not None:
        await tools.servers.provide(tools.registry)
    offer = Offer(None if tools is None else tools.tool_runner(ALL_TOOLS))
    app = create_app(served, settings, keys, offer)
    await DrainingServer(app, settings=settings).serve(sockets=[bind(settings)])


def _workspace(args: argparse.Namespace, home: Path) -> Workspace:
    """The tools of this folder, and the MCP servers of the command line."""
    paths = Paths.from_env({"HOME": str(home / str(os.getpid()))})
    file = Path(args.mcp_servers_config)
    with suppress(ValueError, FileNotFoundError):  # Shepherd starts without what it can't read
        text = args.mcp_servers_json or (file.read_text("utf-8") if file.name else "{}")
        for name, values in json.loads(text).get("mcpServers", {}).items():
            definition = values | {"timeout": values.pop("timeout_ms", 30_000) / 1000}
            ServerStore(paths.mcp_file).save(make_server(name, definition, Origin.USER, file))
    return build_workspace(ALL_TOOLS, paths, Path.cwd(), Notices(), Session)


async def _router(args: argparse.Namespace, home: Path) -> ModelPool:
    """A server without a model of its own: those of a folder, which it loads on demand."""
    folder = home / "router"
    for name in ROUTED:
        path = folder / f"{name}.gguf"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            copyfile(builtin_model(), path)
    engine = {"models_dir": str(folder), "threads": 1, "context_size": 1024, "parallel": 1}
    config = Config.model_validate(
        {"llamacpp": engine, "server": {"max_models": args.models_max, "keep_alive": "-1"}}
    )
    env = {"HOME": str(home)}
    pool = await open_pool(config, ProviderBook(Paths.from_env(env), env), open_backend)
    await pool.refresh()
    return pool


async def _sleeper(args: argparse.Namespace, home: Path) -> ModelPool:
    """A server whose model leaves memory when it is idle."""
    engine = {"models_dir": str(home / "none")}
    config = Config.model_validate(
        {"llamacpp": engine, "server": {"keep_alive": f"{args.sleep_idle_seconds}s"}}
    )
    env = {"HOME": str(home)}

    async def open_model(_config: Config) -> Backend:
        return await _model(args, home)

    pool = await open_pool(config, ProviderBook(Paths.from_env(env), env), open_model)
    await pool.load_default()
    return pool


async def _model(args: argparse.Namespace, models: Path) -> Backend:
    alias = min(args.alias.split(","))
    if args.embedding or args.reranking:
        pooling = "rank" if args.reranking else args.pooling or "mean"
        path = models / f"{pooling}.gguf"
        if not path.exists():
            embedders.CONTEXT = EMBEDDED_TOKENS
            embedders.write_bert(path, gguf.PoolingType[pooling.upper()])
        section = LlamaCppSection(threads=1)
        known = pooling_of(path)
        assert known is not None
        return await LlamaEmbeddingBackend.load(path, section, known, name=alias)
    size = args.ctx_size if args.kv_unified else args.ctx_size // args.parallel
    section = LlamaCppSection(
        threads=1,
        context_size=max(MIN_CONTEXT, size),
        n_batch=args.batch_size,
        ubatch=args.ubatch_size,
        speculation="draft" if args.model_draft else "off",
        draft_model=str(builtin_model()) if args.model_draft else "",
    )
    if args.chat_template_file:
        _use_template(args.chat_template_file)
    # the model of these tests tells stories without an end; with this option some call tools
    goes_on = "stories260K" in args.hf_repo and not args.jinja
    sampling = Sampling(temperature=args.temp, seed=args.seed, ignore_eos=goes_on or None)
    path = _written(args.hf_repo, models) or builtin_model()
    return await LlamaCppBackend.load(path, section, sampling, parallel=args.parallel, name=alias)


def _written(name: str, models: Path) -> Path | None:
    """The file of a small model that fills gaps or sees; None for any other."""
    folder = models / "written" / name.partition(":")[0]
    if not name.endswith("infill") and "tinygemma3" not in name:
        return None
    path = folder / "model.gguf"
    if not path.exists():
        folder.mkdir(parents=True)
        write_llama(path, context=2048, infill=INFILL if name.endswith("infill") else None)
        if "tinygemma3" in name:
            write_gemma_projector(folder / "mmproj-f16.gguf")
    return path


def _use_template(path: str) -> None:
    """Give the model another chat template, which only an option of llama.cpp's server can."""
    from shepherd.backends.llamacpp.native.model import NativeModel

    source = Path(path).read_text(encoding="utf-8")

    def template(self: NativeModel, name: str | None = None) -> str:
        return source

    NativeModel.chat_template = template
