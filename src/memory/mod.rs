//! What outlives a session: the agent's own notes, and the search through earlier sessions.
//!
//! Notes are two small files in the home folder, told to the model once, when a session's prompt is
//! built. Deliberately absent: notes that the model did not write or the user did not edit, and any
//! change of a running session's prompt.

mod notes;
mod session_search;
mod tool;

pub use notes::{Book, Notes, NotesError};
pub use session_search::SessionSearch;
pub use tool::{Memory, NAME};
