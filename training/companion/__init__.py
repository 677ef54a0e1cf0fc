"""A LoRA adapter that teaches SmolLM2-135M-Instruct Shepherd's tools."""
