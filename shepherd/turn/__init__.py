"""The one turn loop that every frontend shares."""

from shepherd.turn.loop import ToolExecutor, TurnLimits, TurnOutcome, run_turn

__all__ = ["ToolExecutor", "TurnLimits", "TurnOutcome", "run_turn"]
