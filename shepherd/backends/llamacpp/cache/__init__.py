"""The prefix cache: sequences in memory, and the tiers behind them."""
