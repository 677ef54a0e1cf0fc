"""TensorRT-LLM's own signatures, so that a call that it would refuse is refused here.

Taken from NVIDIA/TensorRT-LLM around 1.2.0rc2 (names, order and defaults of parameters, and which
names are keyword-only):

- `LLM`, `RequestOutput`: tensorrt_llm/llmapi/llm.py at 4c05a748
- what `LLM` takes beside its explicit arguments: tensorrt_llm/llmapi/llm_args.py (`BaseLlmArgs`,
  `KvCacheConfig`) and tests/unittest/api_stability/references_committed/llm.yaml at e00a1866
- `SamplingParams`, `GuidedDecodingParams`: tensorrt_llm/sampling_params.py at a98a9061
- `CompletionOutput`, `GenerationResult`: tensorrt_llm/executor/result.py at a678b91a
- `TransformersTokenizer`: tensorrt_llm/llmapi/tokenizer.py at 89fd9b74
- `RequestError`: tensorrt_llm/executor/utils.py at 015884d6

All parameters that are used are there in the reference pages of 1.3.0rc24 too.
"""

from collections.abc import Mapping

LLM_EXPLICIT: Mapping[str, object] = {
    "tokenizer": None,
    "tokenizer_mode": "auto",
    "skip_tokenizer_init": False,
    "trust_remote_code": False,
    "tensor_parallel_size": 1,
    "dtype": "auto",
    "revision": None,
    "tokenizer_revision": None,
}
"""Behind `model`, by position or by name."""

LLM_OTHERS: Mapping[str, type | tuple[type, ...]] = {
    "pipeline_parallel_size": int,
    "context_parallel_size": int,
    "moe_tensor_parallel_size": int,
    "moe_expert_parallel_size": int,
    "enable_lora": bool,
    "guided_decoding_backend": str,
    "max_batch_size": int,
    "max_input_len": int,
    "max_seq_len": int,
    "max_beam_width": int,
    "max_num_tokens": int,
    "enable_tqdm": bool,
    "enable_chunked_prefill": bool,
    "kv_cache_config": object,
    "stream_interval": int,
}
"""The stable ones; `LLM` raises ValueError for a name that it does not know."""

GENERATE_ASYNC: Mapping[str, object] = {
    "sampling_params": None,
    "lora_request": None,
    "prompt_adapter_request": None,
    "streaming": False,
    "kv_cache_retention_config": None,
    "disaggregated_params": None,
    "_postproc_params": None,
    "scheduling_params": None,
    "cache_salt": None,
}
"""Behind `inputs`."""

SAMPLING: Mapping[str, type | tuple[type, ...]] = {
    "end_id": int,
    "pad_id": int,
    "max_tokens": int,
    "bad": (str, list),
    "bad_token_ids": list,
    "stop": (str, list),
    "stop_token_ids": list,
    "include_stop_str_in_output": bool,
    "embedding_bias": object,
    "logits_processor": object,
    "apply_batched_logits_processor": bool,
    "n": int,
    "best_of": int,
    "use_beam_search": bool,
    "top_k": int,
    "top_p": float,
    "top_p_min": float,
    "top_p_reset_ids": int,
    "top_p_decay": float,
    "seed": int,
    "temperature": float,
    "min_tokens": int,
    "beam_search_diversity_rate": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "length_penalty": float,
    "early_stopping": int,
    "no_repeat_ngram_size": int,
    "min_p": float,
    "beam_width_array": list,
    "logprobs": int,
    "prompt_logprobs": int,
    "return_context_logits": bool,
    "return_generation_logits": bool,
    "exclude_input_from_output": bool,
    "return_encoder_output": bool,
    "return_perf_metrics": bool,
    "additional_model_outputs": list,
    "lookahead_config": object,
    "guided_decoding": object,
    "ignore_eos": bool,
    "detokenize": bool,
    "add_special_tokens": bool,
    "truncate_prompt_tokens": int,
    "skip_special_tokens": bool,
    "spaces_between_special_tokens": bool,
}
"""A dataclass of keyword-only fields."""

GUIDED: Mapping[str, type | tuple[type, ...]] = {
    "json": (str, dict),
    "regex": str,
    "grammar": str,
    "json_object": bool,
    "structural_tag": str,
}
"""Likewise; only one of them may be set."""

KV_CACHE: Mapping[str, type | tuple[type, ...]] = {
    "enable_block_reuse": bool,
    "max_tokens": int,
    "max_attention_window": list,
    "sink_token_length": int,
    "free_gpu_memory_fraction": float,
    "host_cache_size": int,
    "cross_kv_cache_fraction": float,
    "secondary_offload_min_priority": int,
    "event_buffer_max_size": int,
    "attention_dp_events_gather_period_ms": int,
    "enable_partial_reuse": bool,
    "copy_on_partial_reuse": bool,
    "use_uvm": bool,
    "max_gpu_total_bytes": int,
    "dtype": str,
    "mamba_ssm_cache_dtype": str,
    "tokens_per_block": int,
}
"""A pydantic model that forbids other names."""

COMPLETION_OUTPUT = (
    "index",
    "text",
    "token_ids",
    "cumulative_logprob",
    "logprobs",
    "prompt_logprobs",
    "finish_reason",
    "stop_reason",
    "generation_logits",
)
REQUEST_OUTPUT = ("request_id", "prompt", "prompt_token_ids", "outputs", "context_logits",
                  "finished", "cached_tokens", "abort", "aborted", "result", "aresult")  # fmt: skip
FINISH_REASONS = ("stop", "length", "timeout", "cancelled")
