"""Our API backends beside the official SDKs, on recorded streams."""
