//! `turnd`: a daemon that hosts an AI agent over stdio and speaks the Agent Client Protocol.
//!
//! The modules in reading order; ARCHITECTURE.md has the picture of one prompt's path through them.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod home_file;
pub mod likeness;
pub mod vault;

pub mod message;
pub mod prompt;

pub mod turn;

pub mod compression;

pub mod provider;
pub mod tool;

pub mod sandbox;

pub mod hook;

pub mod approval;
pub mod mcp;
pub mod runtime;
pub mod store;
pub mod trust;

pub mod delegate;
pub mod memory;

pub mod session;

pub mod rpc;
pub mod server;

pub mod script;
