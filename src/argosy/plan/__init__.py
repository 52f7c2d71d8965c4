"""GroupSpec and offers in, a plan with its report out; pure."""
