"""The drafter's hot paths, each beside a plain torch reference."""
