//! What the user says in the middle of the turn: into the runtime's turn, and into the transcript.

use serde_json::{Value, json};

use crate::turn::port::Record;
use crate::turn::{TurnIo, steer};

use super::connection::Connection;
use super::turn::{Failure, RuntimeTurn, text_input};

/// Words of the user on their way into the running turn.
#[derive(Debug)]
pub(super) struct Words {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Steer,
    Redirect,
}

impl<Io: TurnIo> RuntimeTurn<'_, Io> {
    pub(super) fn send_steer(&mut self, connection: &mut Connection) {
        if let Some(text) = self.io.take_steer() {
            self.say_in_between(connection, &text, Words { text: text.clone(), kind: Kind::Steer });
        }
    }

    pub(super) fn send_redirect(&mut self, connection: &mut Connection) {
        if let Some(text) = self.io.take_redirect() {
            let said = format!("{} {text}", steer::CORRECTION_LABEL);
            self.say_in_between(connection, &said, Words { text, kind: Kind::Redirect });
        }
    }

    /// Tells the runtime that most of the turn's time has passed. It may not listen: nobody's words are lost.
    pub(super) fn send_wrap_up(&mut self, connection: &mut Connection) {
        self.wrap_up_at = None;
        connection.request("turn/steer", self.steer_params(steer::WRAP_UP));
    }

    fn steer_params(&self, said: &str) -> Value {
        json!({ "threadId": self.thread.id, "expectedTurnId": self.turn, "input": [text_input(said)] })
    }

    fn say_in_between(&mut self, connection: &mut Connection, said: &str, words: Words) {
        let request = connection.request("turn/steer", self.steer_params(said));
        self.steers.insert(request, words);
    }

    /// Words that the runtime has taken stand in the transcript; others go back to the user.
    pub(super) async fn words_answered(&mut self, words: Words, answer: Result<Value, String>) -> Result<(), Failure> {
        let Words { text, kind } = words;
        if let Err(message) = answer {
            tracing::info!(message, "the runtime takes no words now");
            self.can_steer = false;
            self.io.return_steer(text);
            return Ok(());
        }
        let told = match kind {
            Kind::Steer => steer::append_to_newest_result(&mut self.history, &steer::steer_text(&text)),
            Kind::Redirect => None,
        };
        if let Some(amended) = told.or_else(|| steer::correct_request(&mut self.history, &text)) {
            self.io.record(vec![Record::Amended(amended)]).await?;
        }
        Ok(())
    }

    /// Words that the runtime has not confirmed go back to the user.
    pub(super) fn return_steers(&mut self) {
        let mut unconfirmed: Vec<_> = self.steers.drain().collect();
        unconfirmed.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        for (_, words) in unconfirmed {
            self.io.return_steer(words.text);
        }
    }
}
