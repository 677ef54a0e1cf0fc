"""One conversation that many clients prompt and watch: requests, approvals, updates."""
