"""llama.cpp's own tests of its server, from the sources of llama-cpp-python.

`tests/clients/llamacpp` starts this server for them in the place of `llama-server`. Most are made
for a model that has to be downloaded, and hold the text that it writes.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from scripts.conformance.place import sdist, tested
from scripts.conformance.verdict import Verdict, counted

FOLDER = "vendor/llama.cpp/tools/server/tests"
_NUMBERS = "match_regex|n_prompt|prompt_n|prompt_tokens|cached|usage|n_predicted|predicted_n|<s>"
NOT_HERE: Mapping[str, str] = {
    "downloads a file|huggingface|MaxRetryError": "a file that has to be downloaded",
    "nothing at this path": "an endpoint that is not served",
    "died with return code": "an option of llama-server",
    rf"(?m)^>.*({_NUMBERS}|total_batch_count ==|top_probs.* == 10|bosId|_relevant\[.index)": (
        "the exact text or numbers of a model that has to be downloaded"
    ),
}
FILES: Mapping[str, str] = {
    "test_router": "what only its router has: presets, downloads, slowness for its tests",
    "test_proxy": "a proxy for the page in a browser",
    "test_tools_builtin": "the names, arguments and places of its own tools: Shepherd's are others",
    "test_vision_api": "a model with images that has to be downloaded",
    "test_lora": "adapters of a model that has to be downloaded",
    "test_speculative": "a second model that has to be downloaded",
    "test_compat_gcp": "the format of Google Cloud",
    "test_stream": "streams that only its page in a browser takes up again",
    "test_kv_keep_only_active": "lines of its own log",
}
"""Files whose tests need what Shepherd does not have, if they fail."""

_OPTION = (
    "an option of llama-server: --host of several, --no-slots, --tags, --media-path and others"
)
_SLOT_FILE = "slots in files of llama.cpp's own format"
TESTS: Mapping[str, str] = {
    "test_slot_restore_legacy_token_list": _SLOT_FILE,
    "test_slot_save_restore_image_payload_larger_than_context": _SLOT_FILE,
    "test_server_sleep_read_only_endpoints": "a process without numbers of its own in /metrics",
    "test_server_multiple_addresses": _OPTION,
    "test_server_slots": _OPTION,
    "test_server_model_aliases_and_tags": _OPTION,
    "test_metrics_disabled": _OPTION,
    "test_chat_template": _OPTION,
    "test_apply_chat_template": _OPTION,
    "test_local_media_file": _OPTION,
    "test_no_ui": "its page in a browser",
    "test_access_static_assets_without_api_key": "its page in a browser",
    "test_cors_proxy_only_forwards_explicit_proxy_headers": FILES["test_proxy"],
}
"""The same for single tests."""

WHY: Mapping[str, str] = {
    "test_chat_template_assistant_prefill": "parts of a text have no empty line between them",
    "test_mcp_config_file_errors": "a file of MCP servers that is broken is told, not fatal",
    "test_invalid_chat_completion_req": "two answers in a row are served",
    "test_anthropic_tool_result_with_image": "a picture for a model without eyes is a 400",
    "test_anthropic_vision_format_accepted": "a picture for a model without eyes is a 400",
    "test_anthropic_empty_messages": "an empty conversation is a 400, as Anthropic has it",
    "test_anthropic_thinking_history_in_count_tokens": (
        "reasoning needs the signature that came with it, as Anthropic has it"
    ),
    "test_responses_stream_with_llama_telemetry": (
        "an answer that its limit cuts ends as `response.incomplete`, as OpenAI has it"
    ),
    "test_embedding_pooling_none": "a text has one vector",
    "test_embedding_pooling_none_oai": "a text has one vector",
    "test_metrics_prometheus_format": "a highest value is a gauge, and drafts count in tokens",
    "test_cors_options": "a preflight allows no cookies, and names the headers that were asked for",
}
"""Why others fail, most of them on purpose."""


def run(work: Path) -> list[Verdict]:
    """All tests that are not marked as slow."""
    release = version("llama-cpp-python")
    folder = sdist("llama_cpp_python", release) / FOLDER
    command = [sys.executable, "-m", "tests.clients.llamacpp", str(folder), "-q", "-n", "0"]
    command += ["-o", "addopts=", "--timeout", "60"]
    left_out, failed = Counter[str](), Counter[tuple[str, str]]()
    passed, applicable = Counter[str](), Counter[str]()
    for name, problem in tested(work / "report.xml", command):
        file, test = name.split(".")[1], name.partition("[")[0].rpartition(".")[2]
        reasons = (why for pattern, why in NOT_HERE.items() if re.search(pattern, problem))
        if problem and (reason := FILES.get(file) or TESTS.get(test) or next(reasons, None)):
            left_out[reason] += 1
            continue
        applicable[file] += 1
        if problem:
            failed[file, test] += 1
        else:
            passed[file] += 1
    return [
        Verdict(
            "llama.cpp's tests of its server",
            f"that of llama-cpp-python {release}",
            passed.total(),
            applicable.total(),
            counted(left_out),
            tuple(
                f"{file}, {name} ({count}){': ' * (name in WHY)}{WHY.get(name, '')}"
                for (file, name), count in failed.items()
            ),
            tuple(f"`{file}`: {passed[file]} of {applicable[file]}" for file in sorted(applicable)),
        )
    ]
