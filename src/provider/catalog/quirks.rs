//! The configuration's word on how a server differs goes over what is known about it.

use crate::config::Quirks;
use crate::provider::endpoint::{
    CacheStyle, CacheTtl, EffortStyle, EmptyContent, MaxTokensField, ReasoningReplay, ServerQuirks, SystemRole,
    ToolCallIds, ToolImages,
};

/// A configured value that does not exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadValue {
    /// The quirk.
    pub(super) name: &'static str,
    /// What is configured.
    pub(super) value: String,
    /// What exists.
    pub(super) expected: String,
}

/// The quirks that hold.
pub(super) fn override_quirks(known: ServerQuirks, configured: &Quirks) -> Result<ServerQuirks, BadValue> {
    let mut quirks = known;
    choose(
        &mut quirks.empty_content,
        ("empty_content", configured.empty_content.as_deref()),
        &[
            ("null", EmptyContent::Null),
            ("empty", EmptyContent::Empty),
            ("absent", EmptyContent::Absent),
            ("space", EmptyContent::Space),
        ],
    )?;
    choose(
        &mut quirks.max_tokens_field,
        ("max_tokens_field", configured.max_tokens_field.as_deref()),
        &[
            (MaxTokensField::MaxTokens.as_str(), MaxTokensField::MaxTokens),
            (MaxTokensField::MaxCompletionTokens.as_str(), MaxTokensField::MaxCompletionTokens),
        ],
    )?;
    choose(
        &mut quirks.system_role,
        ("system_role", configured.system_role.as_deref()),
        &[(SystemRole::System.as_str(), SystemRole::System), (SystemRole::Developer.as_str(), SystemRole::Developer)],
    )?;
    choose(
        &mut quirks.effort_style,
        ("effort_style", configured.effort_style.as_deref()),
        &[("field", EffortStyle::Field), ("object", EffortStyle::Object)],
    )?;
    choose(
        &mut quirks.cache_style,
        ("prompt_cache_style", configured.prompt_cache_style.as_deref()),
        &[("key", CacheStyle::Key), ("markers", CacheStyle::Markers)],
    )?;
    choose(
        &mut quirks.cache_ttl,
        ("prompt_cache_ttl", configured.prompt_cache_ttl.as_deref()),
        &[("5m", CacheTtl::FiveMinutes), ("1h", CacheTtl::OneHour)],
    )?;
    choose(
        &mut quirks.tool_images,
        ("tool_images", configured.tool_images.as_deref()),
        &[("user_message", ToolImages::UserMessage), ("inline", ToolImages::Inline)],
    )?;
    choose(
        &mut quirks.tool_call_ids,
        ("tool_call_ids", configured.tool_call_ids.as_deref()),
        &[("any", ToolCallIds::Any), ("nine_alphanumeric", ToolCallIds::NineAlphanumeric)],
    )?;
    quirks.reasoning_replay = match configured.replay_reasoning_content {
        Some(false) => ReasoningReplay::Never,
        Some(true) if quirks.reasoning_replay == ReasoningReplay::Never => ReasoningReplay::WhenPresent,
        Some(true) | None => quirks.reasoning_replay,
    };
    for (quirk, value) in [
        (&mut quirks.stream_usage, configured.stream_usage),
        (&mut quirks.parallel_tool_calls, configured.parallel_tool_calls),
        (&mut quirks.reasoning_effort, configured.reasoning_effort),
        (&mut quirks.prompt_cache, configured.prompt_cache),
        (&mut quirks.tool_call_extra, configured.tool_call_extra),
        (&mut quirks.sign_tool_calls, configured.sign_tool_calls),
    ] {
        *quirk = value.unwrap_or(*quirk);
    }
    Ok(quirks)
}

/// Sets a quirk to the choice with the configured name; without one it stays.
fn choose<T: Copy>(
    quirk: &mut T,
    (name, value): (&'static str, Option<&str>),
    choices: &[(&str, T)],
) -> Result<(), BadValue> {
    let Some(value) = value else { return Ok(()) };
    let found = choices.iter().find(|(choice, _)| *choice == value);
    let expected = || choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(", ");
    *quirk = found.ok_or_else(|| BadValue { name, value: value.to_owned(), expected: expected() })?.1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quirks(toml: &str) -> Result<ServerQuirks, BadValue> {
        override_quirks(ServerQuirks::default(), &toml::from_str(toml).unwrap())
    }

    #[test]
    fn every_quirk_can_be_set_and_the_rest_stays() {
        let set = quirks(
            "empty_content = \"space\"\nmax_tokens_field = \"max_completion_tokens\"\nsystem_role = \"developer\"\n\
             effort_style = \"object\"\nprompt_cache_style = \"markers\"\nprompt_cache_ttl = \"1h\"\n\
             tool_images = \"inline\"\ntool_call_ids = \"nine_alphanumeric\"\nreplay_reasoning_content = true\n\
             stream_usage = false\nparallel_tool_calls = true\nreasoning_effort = true\nprompt_cache = true\n\
             tool_call_extra = true\nsign_tool_calls = true",
        );
        let wanted = ServerQuirks {
            empty_content: EmptyContent::Space,
            reasoning_replay: ReasoningReplay::WhenPresent,
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            stream_usage: false,
            parallel_tool_calls: true,
            reasoning_effort: true,
            effort_style: EffortStyle::Object,
            prompt_cache: true,
            cache_style: CacheStyle::Markers,
            cache_ttl: CacheTtl::OneHour,
            system_role: SystemRole::Developer,
            tool_images: ToolImages::Inline,
            tool_call_extra: true,
            sign_tool_calls: true,
            tool_call_ids: ToolCallIds::NineAlphanumeric,
        };
        assert_eq!(set, Ok(wanted));
        assert_eq!(quirks(""), Ok(ServerQuirks::default()));
    }

    #[test]
    fn a_choice_that_does_not_exist_is_named_with_those_that_do() {
        let bad = quirks("tool_images = \"nowhere\"").unwrap_err();
        assert_eq!(
            (bad.name, bad.value.as_str(), bad.expected.as_str()),
            ("tool_images", "nowhere", "user_message, inline")
        );
    }
}
