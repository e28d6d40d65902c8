//! The gate between a prepared call and its run: what passes, what is asked, what never happens.
