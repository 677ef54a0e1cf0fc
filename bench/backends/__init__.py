"""Our API backends and the official SDKs, compared on recorded streams."""
