"""The agent that stands on every host: standard library only, Python 3.8 and newer, no port, no
dependencies.
"""

__version__ = "0.1.0"
