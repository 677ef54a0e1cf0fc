"""GuideLLM's load: no request fails, and the tokens of all answers are those that were counted."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx

from scripts.conformance.place import python, shepherd_server, version
from scripts.conformance.verdict import Skipped, Verdict

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
LEFT_OUT = (
    "aiperf: it downloads a tokenizer even where the server's counts are used",
    "figures: two cores say nothing of a server's speed",
)


def run(work: Path) -> list[Verdict]:
    """Two requests at a time, streamed, over the built-in model."""
    interpreter = python("load", "guidellm")
    # it counts words itself where a server gives no usage
    subprocess.run([str(interpreter), "-c", VOCABULARY], cwd=work, check=True, capture_output=True)
    questions = (json.dumps({"text": f"What is {n} plus {n}?"}) for n in range(REQUESTS))
    (work / "questions.jsonl").write_text("\n".join(questions), "utf-8")
    with shepherd_server(work, "--max-tokens", str(MAX_TOKENS)) as url:
        command = [str(interpreter.with_name("guidellm")), "run", "--disable-console"]
        command += ["--backend", f"kind=openai_http,target={url},model=default"]
        command += ["--profile", "kind=concurrent,streams=2"]
        command += ["--constraint", f"kind=max_requests,count={REQUESTS}"]
        command += ["--tokenizer", f"kind=hf_auto,model={work / 'words'}"]
        command += ["--data", f"kind=json_file,path={work / 'questions.jsonl'}"]
        command += ["--output", f"kind=json,path={work / 'report.json'}"]
        done = subprocess.run(command, cwd=work, check=False, capture_output=True, text=True)
        if not (work / "report.json").exists():
            raise Skipped(f"it wrote no report ({done.stderr.strip()[-200:]})")
        metrics = httpx.get(f"{url}/metrics").text
    requests: dict[str, list[Any]] = json.loads((work / "report.json").read_text("utf-8"))[
        "benchmarks"
    ][0]["requests"]
    good, bad = requests["successful"], [*requests["errored"], *requests["incomplete"]]
    failures = [f"a request failed: {str(request.get('info'))[:200]}" for request in bad]
    for kind, field in (("prompt", "prompt_tokens"), ("generated", "output_tokens")):
        said = sum(request[field] for request in good)
        match = re.search(rf'tokens_total{{kind="{kind}".*}} ([\d.]+)', metrics)
        counted = int(float(match[1])) if match else 0
        if said != counted:
            failures.append(f"answers say {said} {kind} tokens, the server counted {counted}")
    sums = 2
    return [
        Verdict(
            "GuideLLM, requests that succeed and sums of tokens that agree",
            version(interpreter, "guidellm"),
            len(good) + len(bad) + sums - len(failures),
            len(good) + len(bad) + sums,
            LEFT_OUT,
            tuple(failures),
        )
    ]
