"""The `flamepy` command: cli.py reads the command line; beside it what does not train: doctor, caches, kernels, GPUs."""
