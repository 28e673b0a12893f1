"""The operator's two faces: the panel and the commands."""
