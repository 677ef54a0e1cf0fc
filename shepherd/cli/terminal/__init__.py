"""Parts that all terminal frontends use: safe text, paint, keys, attachments."""
