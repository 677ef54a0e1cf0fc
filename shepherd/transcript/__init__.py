"""Conversations on disk: append-only JSON lines that survive being killed at any moment."""

from shepherd.transcript.journal import Transcript
from shepherd.transcript.reading import SavedSession
from shepherd.transcript.store import SessionStore, SessionSummary

__all__ = ["SavedSession", "SessionStore", "SessionSummary", "Transcript"]
