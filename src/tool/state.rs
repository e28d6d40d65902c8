//! State that tools keep for the length of a session.

/// The task list and what the model has read.
#[derive(Debug, Default)]
pub struct SessionState {}
