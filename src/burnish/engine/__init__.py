"""Generation: tokens in, tokens out, exact to what the learner recomputes."""
