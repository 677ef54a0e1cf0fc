"""The command line: prompt, one-shot, JSON lines and the commands."""
