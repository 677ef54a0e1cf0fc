"""Parts that all engines in this process share: prompts, answers, the tokenizer thread."""
