"""Saved conversations: append-only JSON lines in files or PostgreSQL, whole after any kill."""

from shepherd.transcript.records import SavedSession
from shepherd.transcript.store import SessionStore, SessionSummary, Transcript

__all__ = ["SavedSession", "SessionStore", "SessionSummary", "Transcript"]
