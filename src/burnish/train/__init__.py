"""Post-training: one loop, one learner, and an algorithm for each stage that is only credit and loss."""
