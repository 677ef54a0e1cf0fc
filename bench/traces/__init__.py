"""Traces of agents' sessions: what a cache must compute, over the least that anybody could."""
