"""What to do about one group: a pure function from what is known and seen to a decision.

Read `decide.py` first: it is the table of contents. Each step stands in a file of its own and
knows none of the others; they share the draft that they edit, and `depends` and `queue`, which
only answer.
"""
