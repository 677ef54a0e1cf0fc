"""What a box costs, and what works inside."""
