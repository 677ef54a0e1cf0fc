"""One session that many clients share: its requests, its updates, its approvals."""
