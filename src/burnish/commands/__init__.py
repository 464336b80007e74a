"""What the command line does, one file a family of commands; `cli` holds the names, options and help."""
