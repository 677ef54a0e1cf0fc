"""OpenAI's Responses API: items, typed events, stored and background responses."""
