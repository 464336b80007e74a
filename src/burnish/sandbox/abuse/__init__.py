"""The abuse corpus: what hostile programs try, each case with the wall that must stop it."""
