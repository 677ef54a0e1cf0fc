"""Events on a screen: streamed Markdown, tool results, the status line."""
