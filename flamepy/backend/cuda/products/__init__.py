"""Matrix products on a GPU: kernels in plain tiles and on tensor cores, NVIDIA's library, and the words of tiles for all families."""
