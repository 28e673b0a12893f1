"""What a drafter is: both config layouts, tensor inventory, checks and conversion."""
