"""The stages of a campaign, as they run on a host."""
