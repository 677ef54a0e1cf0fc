"""The engine, llama.cpp's server and llama-cpp-python's server, compared in one run."""
