"""Benchmarks: speeds beside PyTorch and JAX, and never a speed of a wrong answer.

python -m bench step --against torch,torch-compile,jax --json step.jsonl     (in a checkout)
flamepy bench kernels --work 'gelu*'                                         (installed)

command.py     the command line           harness.py   check -> warm up -> take turns -> report
work.py        what a suite is made of    worker.py    each contender in a process of its own
kernels.py ops.py products.py dispatch.py optim.py transforms.py step.py control.py gpu.py     the suites
networks.py libraries.py contenders.py    the same work in flamepy, PyTorch and JAX
oracle.py      the same work in NumPy     busy.py     was the machine busy?
report.py targets.py pictures.py roofline.py    what is told
"""
