"""Raw prompts: OpenAI's older completions, and llama.cpp's own API."""
