"""CUDA kernels of our own: an optional stack, which the engine's registry loads where a GPU can run it."""
