"""Requests as jobs, and the choice of jobs for the next batch."""
