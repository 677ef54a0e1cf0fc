"""OpenAI's older completions API: prompts without messages."""
