//! A question of the model on the wire: a form where the client takes those, else the buttons of a
//! permission question.

use turnd_protocol::acp;

use crate::approval::display::escape_lines;
use crate::rpc::Pending;
use crate::rpc::pending::CallError;
use crate::tool::clarify::{self, Inquiry, InquiryEnd};

use super::to_client;

/// The fields of the form.
const CHOICE: &str = "choice";
const ANSWER: &str = "answer";

/// The button that declines.
const DECLINE: &str = "decline";

const NEEDS_OPTIONS: &str = "this client can only show a question with options. Ask again with options, or ask in your answer and end the turn.";
const FAILED: &str = "the client could not show it. Ask in your answer and end the turn.";

/// Asks with a form.
pub(super) async fn by_form(pending: &Pending, session: &str, inquiry: &Inquiry) -> InquiryEnd {
    let scope = acp::ElicitationSessionScope::new(session.to_owned())
        .tool_call_id(acp::ToolCallId::new(inquiry.call_id.clone()));
    let form = acp::ElicitationFormMode::new(scope, schema(&inquiry.options));
    let message = to_client::shortened(&escape_lines(&inquiry.question), 8_000);
    let params = acp::CreateElicitationRequest::new(form, message);
    match pending.call("elicitation/create", &params).await {
        Ok(answer) => read_form(answer.get()),
        Err(error) => failed(&error),
    }
}

fn schema(options: &[String]) -> acp::ElicitationSchema {
    let schema = acp::ElicitationSchema::new();
    if options.is_empty() {
        let answer = acp::StringPropertySchema::new().title("Answer".to_owned()).min_length(1);
        return schema.property(ANSWER, answer, true);
    }
    let shown: Vec<String> = options.iter().map(|option| crate::approval::display::escape(option)).collect();
    let choice = acp::StringPropertySchema::new().title("Choice".to_owned()).enum_values(shown);
    let other = acp::StringPropertySchema::new().title("Something else".to_owned());
    schema.property(CHOICE, choice, false).property(ANSWER, other, false)
}

fn read_form(text: &str) -> InquiryEnd {
    let Ok(response) = serde_json::from_str::<acp::CreateElicitationResponse>(text) else {
        return InquiryEnd::Unavailable(FAILED);
    };
    let content = match response.action {
        acp::ElicitationAction::Accept(accept) => accept.content.unwrap_or_default(),
        acp::ElicitationAction::Decline => return InquiryEnd::Declined,
        _ => return InquiryEnd::Dismissed,
    };
    let field = |name: &str| match content.get(name) {
        Some(acp::ElicitationContentValue::String(text)) if !text.trim().is_empty() => Some(text.clone()),
        _ => None,
    };
    // What was typed says more than what was chosen.
    field(ANSWER).or_else(|| field(CHOICE)).map_or(InquiryEnd::Declined, InquiryEnd::Answered)
}

/// Asks with buttons.
pub(super) async fn by_buttons(pending: &Pending, session: &str, inquiry: &Inquiry) -> InquiryEnd {
    if inquiry.options.is_empty() {
        return InquiryEnd::Unavailable(NEEDS_OPTIONS);
    }
    let button = |id: String, name: String, kind| acp::PermissionOption::new(id, name, kind);
    let mut options: Vec<_> = (1..)
        .zip(&inquiry.options)
        .map(|(number, text)| {
            let name = crate::approval::display::escape(text);
            button(format!("option_{number}"), name, acp::PermissionOptionKind::AllowOnce)
        })
        .collect();
    options.push(button(DECLINE.into(), "None of these".into(), acp::PermissionOptionKind::RejectOnce));
    let call = to_client::inquiring_call(inquiry);
    let params = acp::RequestPermissionRequest::new(session.to_owned(), call, options);
    match pending.call("session/request_permission", &params).await {
        Ok(answer) => read_button(answer.get(), &inquiry.options),
        Err(error) => failed(&error),
    }
}

fn read_button(text: &str, options: &[String]) -> InquiryEnd {
    let Ok(response) = serde_json::from_str::<acp::RequestPermissionResponse>(text) else {
        return InquiryEnd::Unavailable(FAILED);
    };
    match response.outcome {
        acp::RequestPermissionOutcome::Cancelled => InquiryEnd::CalledOff,
        acp::RequestPermissionOutcome::Selected(selected) => {
            let chosen = &*selected.option_id.0;
            let place = chosen.strip_prefix("option_").and_then(|number| number.parse::<usize>().ok());
            let option = place.and_then(|number| options.get(number.checked_sub(1)?));
            option.map_or(InquiryEnd::Declined, |option| InquiryEnd::Answered(option.clone()))
        }
        _ => InquiryEnd::Dismissed,
    }
}

fn failed(error: &CallError) -> InquiryEnd {
    tracing::warn!(tool = clarify::NAME, %error, "a question could not be put to the user");
    InquiryEnd::Unavailable(FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_answered_declined_or_closed() {
        let answered = |text: &str| InquiryEnd::Answered(text.into());
        for (text, expected) in [
            (r#"{"action":"accept","content":{"answer":"blue"}}"#, answered("blue")),
            (r#"{"action":"accept","content":{"choice":"red","answer":" "}}"#, answered("red")),
            (r#"{"action":"accept","content":{"choice":"red","answer":"blue"}}"#, answered("blue")),
            (r#"{"action":"accept","content":{"answer":7}}"#, InquiryEnd::Declined),
            (r#"{"action":"accept"}"#, InquiryEnd::Declined),
            (r#"{"action":"decline"}"#, InquiryEnd::Declined),
            (r#"{"action":"cancel"}"#, InquiryEnd::Dismissed),
            (r#"{"action":"later"}"#, InquiryEnd::Dismissed),
            ("null", InquiryEnd::Unavailable(FAILED)),
        ] {
            assert_eq!(read_form(text), expected, "{text}");
        }
    }

    #[test]
    fn a_choice_shows_what_cannot_be_seen() {
        let form = serde_json::to_string(&schema(&["yes\u{202e}on".into()])).unwrap();
        assert!(form.contains(r"yes\\u{202e}on"), "{form}");
    }

    #[test]
    fn only_a_button_that_was_shown_is_an_answer() {
        let selected = |id: &str| format!(r#"{{"outcome":{{"outcome":"selected","optionId":"{id}"}}}}"#);
        for (text, expected) in [
            (selected("option_2"), InquiryEnd::Answered("b".into())),
            (selected("option_3"), InquiryEnd::Declined),
            (selected("option_0"), InquiryEnd::Declined),
            (selected(DECLINE), InquiryEnd::Declined),
            (r#"{"outcome":{"outcome":"cancelled"}}"#.into(), InquiryEnd::CalledOff),
            ("{}".into(), InquiryEnd::Unavailable(FAILED)),
        ] {
            assert_eq!(read_button(&text, &["a".into(), "b".into()]), expected, "{text}");
        }
    }
}
