//! Calls to a model beside the conversation: summaries, titles, what a picture shows.
//!
//! Each side task may have a model of its own with its own fallbacks; behind them stand the session's
//! models, so that a side task works as long as the session does. Nothing of it is streamed to anybody, no
//! tool is offered, and a failure is the caller's to live with: a side task never ends a turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::message::{AssistantMessage, FinishReason, Message, Usage};
use crate::provider::recovery::{Action, FallbackChain, Recovery, Visible};
use crate::provider::{Endpoint, ErrorKind, ModelReply, ModelRequest, ProviderError, catalog, http::Http};

/// What a model is asked for beside the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideTask {
    /// A summary that takes the place of older messages.
    Compression,
    /// A session's title.
    Title,
    /// What a picture shows, for a model that takes none.
    Vision,
}

impl SideTask {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Compression, Self::Title, Self::Vision];

    /// The name in the configuration: `[auxiliary.NAME]`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compression => "compression",
            Self::Title => "title",
            Self::Vision => "vision",
        }
    }
}

/// The models that are configured for side tasks.
#[derive(Debug, Default)]
pub struct Auxiliary {
    models: BTreeMap<SideTask, Vec<Endpoint>>,
}

impl Auxiliary {
    /// Settles the configured models. What is left out comes with them, one line each.
    #[must_use]
    pub fn resolve(config: &Config, env: &dyn Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let (mut models, mut problems) = (BTreeMap::new(), Vec::new());
        let is_known = |name: &str| SideTask::ALL.iter().any(|task| task.as_str() == name);
        for name in config.auxiliary.keys().filter(|name| !is_known(name)) {
            problems.push(format!("auxiliary.{name} is no side task; there are compression, title and vision"));
        }
        for task in SideTask::ALL {
            let Some(entry) = config.auxiliary.get(task.as_str()) else { continue };
            let usable = entry.model.iter().chain(&entry.fallback_providers).filter_map(|id| {
                let name = task.as_str();
                let problem = |error| problems.push(format!("auxiliary.{name}: `{id}` cannot be used: {error}"));
                catalog::resolve(config, env, id).map_err(problem).ok()
            });
            let usable: Vec<_> = usable.collect();
            if !usable.is_empty() {
                models.insert(task, usable);
            }
        }
        (Self { models }, problems)
    }

    /// True when the task has a model of its own.
    #[must_use]
    pub fn has_own(&self, task: SideTask) -> bool {
        self.models.contains_key(&task)
    }

    /// The models for one call: the task's own, then those of the session. What the call learns about them
    /// stays in it.
    #[must_use]
    pub fn chain(&self, task: SideTask, session: &FallbackChain) -> FallbackChain {
        let own = self.models.get(&task).into_iter().flatten().cloned();
        let mut all = own.chain(session.endpoints().into_iter().map(|endpoint| Endpoint::clone(&endpoint)));
        match all.next() {
            Some(first) => FallbackChain::new(first, all.collect()),
            // Not reached: a session has at least one model.
            None => FallbackChain::new(Endpoint::clone(&session.current()), Vec::new()),
        }
    }
}

/// What a model is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The system prompt.
    pub system: &'a str,
    /// The conversation, legal for any provider.
    pub messages: &'a [Message],
    /// The most tokens the answer may have; `None` leaves it to the endpoint.
    pub max_output_tokens: Option<u64>,
    /// Groups requests that share a prefix.
    pub session_id: &'a str,
}

/// What each answer took: provider, model and tokens.
pub type Spent = Vec<(String, String, Usage)>;

/// What it answered, or why it did not, and what that took.
#[derive(Debug)]
pub struct Reply {
    /// The answer's text, never blank and no refusal.
    pub text: Result<String, ProviderError>,
    /// Who was asked last.
    pub by: Arc<Endpoint>,
    /// What was counted, also of answers that were of no use.
    pub spent: Spent,
    /// Requests sent.
    pub requests: u32,
}

/// Asks the models of a chain until one answers. Waits between attempts as a turn would; an answer that is of no use is
/// not asked for again, but the next model is.
///
/// Cancel-safe: dropping the future closes the connection.
pub async fn ask(chain: &FallbackChain, http: &Http, question: &Question<'_>) -> Reply {
    let mut recovery = Recovery::new();
    let (mut requests, mut spent) = (0, Spent::new());
    loop {
        let by = chain.current();
        requests += 1;
        let error = match attempt(&by, http, question).await {
            Ok(ModelReply { message, usage }) => {
                if usage != Usage::default() {
                    spent.push((by.provider.clone(), by.model.clone(), usage));
                }
                let Some(error) = uselessness(&by, &message) else {
                    return Reply { text: Ok(message.text), by, spent, requests };
                };
                if chain.fall_back(None).is_none() {
                    return Reply { text: Err(error), by, spent, requests };
                }
                continue;
            }
            Err(error) => error,
        };
        tracing::debug!(%error, kind = error.kind.as_str(), "a side task's call failed");
        match recovery.next(chain, &error, Visible::Nothing) {
            Action::Again { after, .. } => tokio::time::sleep(after).await,
            Action::Compact { .. } | Action::Fail => return Reply { text: Err(error), by, spent, requests },
        }
    }
}

/// Why an answer is of no use: the words of a refusal are no summary and no title.
fn uselessness(by: &Endpoint, answer: &AssistantMessage) -> Option<ProviderError> {
    if answer.finish == FinishReason::Refused {
        return Some(by.failed(ErrorKind::ContentPolicyBlocked, None, "the model refused to answer"));
    }
    let is_blank = answer.text.trim().is_empty();
    is_blank.then(|| by.failed(ErrorKind::InvalidResponse, None, "the answer is empty"))
}

async fn attempt(endpoint: &Endpoint, http: &Http, question: &Question<'_>) -> Result<ModelReply, ProviderError> {
    let request = ModelRequest {
        system: question.system,
        messages: question.messages,
        tools: &[],
        max_output_tokens: question.max_output_tokens,
        session_id: question.session_id,
    };
    let mut stream = endpoint.open(http, &request).await?;
    let mut events = Vec::new();
    loop {
        let done = stream.next(&mut events).await?;
        events.clear();
        if let Some(reply) = done {
            return Ok(reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::endpoint::tests::endpoint;

    #[test]
    fn a_side_task_asks_its_own_models_first_and_the_sessions_last() {
        let session = FallbackChain::new(endpoint("p", "m"), vec![endpoint("f", "n")]);
        let models = BTreeMap::from([(SideTask::Title, vec![endpoint("small", "s")])]);
        let auxiliary = Auxiliary { models };
        let ids = |task| -> Vec<String> {
            auxiliary.chain(task, &session).endpoints().iter().map(|endpoint| endpoint.id()).collect()
        };
        assert_eq!(ids(SideTask::Title), ["small/s", "p/m", "f/n"]);
        assert_eq!(ids(SideTask::Compression), ["p/m", "f/n"]);
        assert!(auxiliary.has_own(SideTask::Title) && !auxiliary.has_own(SideTask::Vision));
    }

    #[test]
    fn a_model_that_cannot_be_used_is_left_out() {
        let mut config = Config::default();
        let entry = crate::config::AuxiliaryConfig { model: Some("nobody/x".into()), fallback_providers: Vec::new() };
        config.auxiliary.insert("title".into(), entry);
        let (auxiliary, problems) = Auxiliary::resolve(&config, &|_| None);
        assert!(!auxiliary.has_own(SideTask::Title) && problems[0].contains("nobody"), "{problems:?}");
    }
}
