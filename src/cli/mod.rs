//! The subcommands beside serving: each reads its arguments, does its work and writes to the output it is given.

pub mod sessions;
