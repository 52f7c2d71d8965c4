"""What a program inside a task may import: its peers, whole checkpoints, metrics.

Standard library only, Python 3.8 or newer; each module stands alone and may be copied out.
Programs do not need it: all it reads are environment variables and files that anything can read.
"""
