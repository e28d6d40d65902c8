//! `turnd`: a daemon that hosts an AI agent over stdio and speaks the Agent Client Protocol.
//!
//! The modules in reading order; ARCHITECTURE.md has the picture of one prompt's path through them.

pub mod clock;
pub mod config;
pub mod message;

pub mod provider;
pub mod tool;

pub mod rpc;

pub mod approval;
pub mod store;
pub mod turn;

pub mod script;

pub mod cli;
