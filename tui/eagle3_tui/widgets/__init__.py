"""What the screens are made of: each widget draws its own part of the snapshot."""
