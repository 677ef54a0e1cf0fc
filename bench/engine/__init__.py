"""The engine beside llama.cpp's server and llama-cpp-python's server, in one run."""
