"""Prompts that run at set times, through systemd's timers or crontab."""
