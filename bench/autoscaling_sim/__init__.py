"""A discrete-event model of a fleet, for trying scaling policies: no wall clock, seeded."""
