"""Plain data with described fields, and its check when it comes from outside."""
