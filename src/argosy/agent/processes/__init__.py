"""Processes: started once, watched, adopted, stopped with all their descendants."""
