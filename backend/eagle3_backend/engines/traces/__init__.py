"""Profiler traces of an engine: read in bounded memory, and reduced to where a decode step's time goes."""
