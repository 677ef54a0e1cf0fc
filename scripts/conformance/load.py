"""The load of GuideLLM and aiperf: no request fails, and the tokens of all answers are counted."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from scripts.conformance.place import python, shepherd_server, version
from scripts.conformance.verdict import Skipped, Verdict

PROGRAMS = {"load": "guidellm", "aiperf": "aiperf"}
"""The packages by the names of their environments."""

REQUESTS = 60
MAX_TOKENS = 16
VOCABULARY = """
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", eos_token="[UNK]")
fast.save_pretrained("words")
"""
LEFT_OUT = ("figures: two cores say nothing of a server's speed",)


class Load(NamedTuple):
    """What a program saw: requests that succeeded, the others, and the tokens of all answers."""

    good: int
    bad: list[str]
    tokens: dict[str, int]


def run(work: Path) -> list[Verdict]:
    """Two requests at a time, streamed, over the built-in model."""
    interpreters = {name: python(name, package) for name, package in PROGRAMS.items()}
    # they want a tokenizer even where the server's counts are used
    command = [str(interpreters["load"]), "-c", VOCABULARY]
    subprocess.run(command, cwd=work, check=True, capture_output=True)
    questions = (json.dumps({"text": f"What is {n} plus {n}?"}) for n in range(REQUESTS))
    (work / "questions.jsonl").write_text("\n".join(questions), "utf-8")
    return [
        _verdict(work, interpreters["load"], "guidellm", _guidellm),
        _verdict(work, interpreters["aiperf"], "aiperf", _aiperf),
    ]


def _verdict(
    work: Path, interpreter: Path, name: str, load: Callable[[Path, Path, str], Load]
) -> Verdict:
    with shepherd_server(work, "--max-tokens", str(MAX_TOKENS)) as url:
        seen = load(work, interpreter.with_name(name), url)
        metrics = httpx.get(f"{url}/metrics").text
    failures = [f"a request failed: {text[:200]}" for text in seen.bad]
    for kind, said in seen.tokens.items():
        match = re.search(rf'tokens_total{{kind="{kind}".*}} ([\d.]+)', metrics)
        counted = int(float(match[1])) if match else 0
        if said != counted:
            failures.append(f"answers say {said} {kind} tokens, the server counted {counted}")
    total = seen.good + len(seen.bad) + len(seen.tokens)
    title = "GuideLLM" if name == "guidellm" else name
    return Verdict(
        f"{title}, requests that succeed and sums of tokens that agree",
        version(interpreter, name),
        total - len(failures),
        total,
        LEFT_OUT,
        tuple(failures),
    )


def _guidellm(work: Path, program: Path, url: str) -> Load:
    command = [str(program), "run", "--disable-console"]
    command += ["--backend", f"kind=openai_http,target={url},model=default"]
    command += ["--profile", "kind=concurrent,streams=2"]
    command += ["--constraint", f"kind=max_requests,count={REQUESTS}"]
    command += ["--tokenizer", f"kind=hf_auto,model={work / 'words'}"]
    command += ["--data", f"kind=json_file,path={work / 'questions.jsonl'}"]
    command += ["--output", f"kind=json,path={work / 'report.json'}"]
    report = _report(work, command, work / "report.json")
    requests: dict[str, list[Any]] = report["benchmarks"][0]["requests"]
    good = requests["successful"]
    bad = [*requests["errored"], *requests["incomplete"]]
    tokens = {
        "prompt": sum(request["prompt_tokens"] for request in good),
        "generated": sum(request["output_tokens"] for request in good),
    }
    return Load(len(good), [str(request.get("info")) for request in bad], tokens)


def _aiperf(work: Path, program: Path, url: str) -> Load:
    command = [str(program), "profile", "--model", "default", "--url", url]
    command += ["--endpoint-type", "chat", "--streaming", "--use-server-token-count"]
    command += ["--tokenizer", str(work / "words"), "--ui", "none"]
    command += ["--input-file", str(work / "questions.jsonl")]
    command += ["--custom-dataset-type", "single_turn"]
    command += ["--concurrency", "2", "--request-count", str(REQUESTS)]
    command += ["--artifact-dir", str(work / "aiperf")]
    report = _report(work, command, work / "aiperf" / "profile_export_aiperf.json")
    tokens = {
        "prompt": round(report["total_usage_prompt_tokens"]["avg"]),
        "generated": round(report["total_usage_completion_tokens"]["avg"]),
    }
    good = round(report["request_count"]["avg"])
    failed = [str(error) for error in report["error_summary"]]
    return Load(good, failed or ["it is missing"] * (REQUESTS - good), tokens)


def _report(work: Path, command: list[str], path: Path) -> Any:
    """The report that a program writes."""
    done = subprocess.run(command, cwd=work, check=False, capture_output=True, text=True)
    if not path.exists():
        raise Skipped(f"it wrote no report ({done.stderr.strip()[-200:]})")
    return json.loads(path.read_text("utf-8"))
