"""The use cases of the panel as commands: data on standard output, messages on standard error."""
