"""Saved conversations: append-only JSON lines in files or PostgreSQL, whole after any kill."""

from shepherd.transcript.journal import Transcript
from shepherd.transcript.records import SavedSession
from shepherd.transcript.store import SessionStore, SessionSummary

__all__ = ["SavedSession", "SessionStore", "SessionSummary", "Transcript"]
