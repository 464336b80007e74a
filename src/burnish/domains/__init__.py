"""Domains: kinds of agent work, each with a task generator, a world, a verifier and an oracle."""
