"""llama.cpp's own API: raw prompts, tokens, and facts of the loaded model."""
