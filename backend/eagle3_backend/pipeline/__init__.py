"""What the work is: stages, their parameters, artifacts, order, fingerprints, and what is fresh."""
