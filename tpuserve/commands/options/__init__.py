"""Options and argument types that several commands share."""
