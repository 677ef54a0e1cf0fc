"""The one turn loop that every frontend shares."""

from shepherd.turn.loop import continue_turn, run_turn
from shepherd.turn.parts import OutOfTokensError, ToolExecutor, TurnLimits, TurnOutcome

__all__ = [
    "OutOfTokensError",
    "ToolExecutor",
    "TurnLimits",
    "TurnOutcome",
    "continue_turn",
    "run_turn",
]
