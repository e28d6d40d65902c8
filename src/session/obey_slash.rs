//! What slash commands do, at once, whether a turn runs or not.

use crate::config::Mode;
use crate::message::{Part, Usage};

use super::command::{Prompt, PromptOutcome};
use super::io::{Desk, Hearing};
use super::port::SessionEvent;
use super::slash::{self, Slash};
use super::task::{Phase, Task, answer};

impl Task {
    pub(super) async fn obey_slash(&mut self, command: Slash, prompt: Prompt) {
        let remark = match command {
            Slash::Queue(text) if text.is_empty() => Some("Nothing to queue: write the prompt after `/queue`.".into()),
            Slash::Queue(text) => {
                self.enqueue(Prompt { parts: vec![Part::text(text)], ..prompt });
                return;
            }
            Slash::Compact(focus) => return self.compact(focus, prompt).await,
            Slash::Help => Some(slash::help()),
            Slash::Steer(text) => Some(self.steer_remark(&text).await),
            Slash::Redirect(text) => Some(self.redirect_remark(&text).await),
            Slash::Stop => {
                self.mailbox.handle.cancel();
                None
            }
            Slash::Mode(mode) => Some(self.mode_remark(mode).await),
            Slash::Model(model) => Some(self.model_remark(model).await),
            Slash::Tools => Some(self.tools_remark()),
            Slash::Context => Some(self.context_remark()),
            Slash::Usage => Some(self.usage_remark()),
        };
        if let Some(text) = remark {
            self.remark(text).await;
        }
        answer(prompt.reply, PromptOutcome::Obeyed);
    }

    /// Says something that is no part of the history.
    pub(super) async fn remark(&mut self, text: String) {
        self.remarks += 1;
        let message_id = format!("remark-{}", self.remarks).into();
        self.session.client.tell(SessionEvent::Remark { message_id, text }).await;
    }

    async fn steer_remark(&mut self, text: &str) -> String {
        let hearing = self.desk().map_or(Hearing::TooLate, |desk| desk.steer(text));
        self.words_remark(hearing, text, "Noted; the agent will read it with its next step.").await
    }

    async fn redirect_remark(&mut self, text: &str) -> String {
        let hearing = self.desk().map_or(Hearing::TooLate, |desk| desk.redirect(text));
        self.words_remark(hearing, text, "The request is corrected.").await
    }

    /// Where words for the running turn go, unless it is called off.
    fn desk(&self) -> Option<&Desk> {
        match &self.phase {
            Phase::Running(running) if !running.cancel.is_cancelled() => Some(&running.desk),
            Phase::Running(_) | Phase::Idle(_) | Phase::Compacting(_) => None,
        }
    }

    /// What came of words for the running turn.
    async fn words_remark(&mut self, hearing: Hearing, text: &str, taken: &str) -> String {
        match hearing {
            Hearing::Taken if self.keep_words(text).await => taken,
            Hearing::Taken => {
                "The words could not be stored, so they are lost if turnd ends now; `turnd doctor` says more."
            }
            Hearing::Blank => "There are no words behind the command; nothing was told.",
            Hearing::TooLate => "No turn is running: send it as a prompt.",
        }
        .into()
    }

    async fn mode_remark(&mut self, mode: Option<String>) -> String {
        match mode {
            None => format!("The mode is `{}`.", self.session.gate.mode().as_str()),
            Some(id) => match Mode::from_id(&id) {
                Some(mode) => {
                    self.set_mode(mode).await;
                    format!("The mode is `{}` now.", mode.as_str())
                }
                None => format!("There is no mode `{id}`: ask, accept_edits, plan, auto, full_access."),
            },
        }
    }

    async fn model_remark(&mut self, model: Option<String>) -> String {
        match model {
            None => format!("The model is `{}`.", self.session.row.model),
            Some(model) => match self.set_model(model).await {
                Ok(options) => format!("The model is `{}` now.", options.model),
                Err(error) => format!("The model was not changed: {error}."),
            },
        }
    }

    fn tools_remark(&self) -> String {
        self.session.tools_now().catalogue()
    }

    fn context_remark(&self) -> String {
        let window = self.session.chain.current().window();
        format!("About {} of {window} tokens are in use.", self.context_level())
    }

    /// Tokens in the context, roughly.
    pub(super) fn context_level(&self) -> u64 {
        match &self.phase {
            // Nothing was counted since a stored session was opened.
            Phase::Idle(history) if self.context_tokens == 0 && !history.is_empty() => {
                self.session.estimated_level(history)
            }
            _ => self.context_tokens,
        }
    }

    fn usage_remark(&self) -> String {
        let Usage { input_tokens, output_tokens, cached_tokens, .. } = self.session.usage;
        let spent = self.session.spent_usd.filter(|spent| *spent > 0.0);
        let spent = spent.map(|spent| format!(", {spent:.6} USD")).unwrap_or_default();
        format!("In this session: {input_tokens} tokens in ({cached_tokens} cached), {output_tokens} out{spent}.")
    }
}
