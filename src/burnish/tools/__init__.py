"""Tools that an agent calls: definition, validation, worlds that answer them, and seeded faults."""
