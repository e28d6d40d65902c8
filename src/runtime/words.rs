//! What the user says in the middle of the turn: into the runtime's turn, and into the transcript.

use serde_json::json;

use crate::turn::port::Record;
use crate::turn::{TurnIo, steer};

use super::connection::Connection;
use super::turn::{Failure, RuntimeTurn, text_input};

impl<Io: TurnIo> RuntimeTurn<'_, Io> {
    pub(super) async fn send_steer(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if let Some(text) = self.io.take_steer() {
            self.say_in_between(connection, &text, text.clone());
            let told = steer::append_to_newest_result(&mut self.history, &steer::steer_text(&text));
            if let Some(amended) = told.or_else(|| steer::correct_request(&mut self.history, &text)) {
                self.io.record(vec![Record::Amended(amended)]).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn send_redirect(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        if let Some(text) = self.io.take_redirect() {
            let words = format!("{} {text}", steer::CORRECTION_LABEL);
            self.say_in_between(connection, &words, text.clone());
            if let Some(amended) = steer::correct_request(&mut self.history, &text) {
                self.io.record(vec![Record::Amended(amended)]).await?;
            }
        }
        Ok(())
    }

    fn say_in_between(&mut self, connection: &mut Connection, words: &str, text: String) {
        let params = json!({
            "threadId": self.thread.id,
            "expectedTurnId": self.turn,
            "input": [text_input(words)],
        });
        self.steers.insert(connection.request("turn/steer", params), text);
    }

    /// Words that the runtime has not confirmed go back to the user.
    pub(super) fn return_steers(&mut self) {
        let mut unconfirmed: Vec<_> = self.steers.drain().collect();
        unconfirmed.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        for (_, text) in unconfirmed {
            self.io.return_steer(text);
        }
    }
}
