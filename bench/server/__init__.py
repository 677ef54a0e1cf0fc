"""The server under load: bad requests, proxied models, and each API beside llama.cpp's."""
