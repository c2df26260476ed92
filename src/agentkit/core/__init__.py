"""What every other room speaks in: contracts, policies around a call, the wiring of a run, and the testing kit."""
