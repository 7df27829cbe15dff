"""What the `flamepy` command does, one file a concern. Nothing here is needed to use flamepy as a library.

Reading order: runs.py (a run from beginning to end), loop.py (the training loop), gpt_job.py and gpt.py (the default
job and its model), data.py; then what makes a run trustworthy: checkpoint.py, run_folder.py, files.py,
signals.py, nonfinite.py; then what a person sees: config.py, display.py, curves.py, sample.py, doctor.py.

"""
