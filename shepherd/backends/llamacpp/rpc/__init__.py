"""llama.cpp's RPC backend: models on several machines, and the worker that serves one of them."""
