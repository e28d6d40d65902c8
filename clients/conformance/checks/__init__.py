"""The checks, one file per subject."""
