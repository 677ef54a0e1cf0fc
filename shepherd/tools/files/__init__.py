"""Files and directories."""
