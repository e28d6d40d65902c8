//! Whatever a model, a file or a page holds: no panic, and the promises of the pure parts.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::html::to_markdown;
use super::line_window::LineWindow;
use super::output::{cap, clean_for_model, one_line};
use super::path::resolve;
use super::process::{Capture, Processes};
use super::registry::{ToolRegistry, built_in};
use super::replacement::{Scope, replace};
use super::testing::Workspace;
use crate::config::ToolsConfig;

/// Any JSON, small.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "-?[0-9]{1,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Arguments for any tool: known names with any values, and unknown names.
fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "path",
            "line",
            "limit",
            "content",
            "old",
            "new",
            "replace_all",
            "pattern",
            "glob",
            "todos",
            "action",
            "id",
            "url",
            "cwd",
        ])
        .prop_map(str::to_owned),
        ".{0,6}",
    ];
    prop::collection::vec((name, json()), 0..5).prop_map(|pairs| pairs.into_iter().collect())
}

/// Text with many line ends, blanks and repeats, where edits go wrong.
fn lines() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "  a", "a ", "\t", "", "é", "世", "\r"]), 0..12)
        .prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn any_arguments_are_answered(arguments in arguments()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let workspace = Workspace::new();
        let registry = ToolRegistry::new(built_in(&Processes::default()), &ToolsConfig::default());
        for spec in registry.specs() {
            let tool = registry.get(&spec.name).unwrap();
            let prepared = runtime.block_on(tool.prepare(&arguments, &workspace.context));
            if let Err(failure) = prepared {
                prop_assert!(!failure.text.is_empty());
                prop_assert!(failure.text.len() < 8_000, "{}", failure.text.len());
            }
        }
        prop_assert!(workspace.names().is_empty(), "preparing has no effect");
    }

    #[test]
    fn any_path_is_answered_with_a_plain_one(spelled in ".{0,40}|(\\.\\./|\\./|/|~/|a/){0,9}[a-z]?|file:.{0,20}") {
        if let Ok(path) = resolve(&spelled, Path::new("/tmp")) {
            prop_assert!(path.real.is_absolute());
            let is_plain = path.real.components().all(|part| {
                matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_))
            });
            prop_assert!(is_plain, "{:?}", path.real);
        }
    }

    #[test]
    fn cleaned_output_has_no_control_characters_and_stays_as_it_is(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let cleaned = clean_for_model(&bytes);
        prop_assert!(!cleaned.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{cleaned:?}");
        prop_assert_eq!(clean_for_model(cleaned.as_bytes()), cleaned);
    }

    #[test]
    fn a_capped_text_begins_and_ends_like_the_whole(text in ".{0,80}", max in 0_usize..60) {
        let capped = cap(&text, max, "hint");
        if text.chars().count() <= max {
            prop_assert_eq!(&*capped, text.as_str());
        } else {
            let head: String = text.chars().take(max / 3 * 2).collect();
            let tail: String = text.chars().rev().take(max - max / 3 * 2).collect::<Vec<_>>().into_iter().rev().collect();
            prop_assert!(capped.starts_with(&head) && capped.ends_with(&tail), "{capped:?}");
        }
    }

    #[test]
    fn a_title_has_one_line_of_its_length(text in "[\\s\\S]{0,80}", max in 1_usize..60) {
        let line = one_line(&text, max);
        prop_assert!(line.chars().count() <= max && !line.contains('\n'), "{line:?}");
    }

    #[test]
    fn an_exact_replacement_is_what_replace_would_do(text in lines(), old in "[ab \n]{1,4}", new in lines()) {
        let count = text.matches(&old).count();
        match replace(&text, &old, &new, Scope::All) {
            Ok(replaced) if count > 0 => {
                prop_assert_eq!(replaced.text, text.replace(&old, &new));
                prop_assert_eq!(replaced.count, count);
            }
            Ok(replaced) => prop_assert!(replaced.ignored_trailing_space),
            Err(_) => prop_assert_eq!(count, 0),
        }
        let one = replace(&text, &old, &new, Scope::One);
        prop_assert!(count != 1 || one.is_ok());
        prop_assert!(count < 2 || one.is_err());
    }

    #[test]
    fn the_lines_of_a_window_are_those_of_the_text(text in lines(), first in 1_u64..9, count in 1_u64..9, piece in 1_usize..5) {
        let mut window = LineWindow::new(first, count, 10_000);
        text.as_bytes().chunks(piece).for_each(|piece| window.push(piece));
        let picked = window.finish();
        let expected: Vec<String> = text
            .split_inclusive('\n')
            .enumerate()
            .map(|(index, line)| (index as u64 + 1, line))
            .filter(|(number, _)| *number >= first && *number < first + count)
            .map(|(number, line)| {
                let bare = line.strip_suffix('\n').unwrap_or(line);
                format!("{number}\t{}", bare.strip_suffix('\r').unwrap_or(bare))
            })
            .collect();
        prop_assert_eq!(picked.text, expected.join("\n"));
        prop_assert_eq!(picked.total, text.split_inclusive('\n').count() as u64);
    }

    #[test]
    fn a_capture_counts_every_byte(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8), keep in 0_usize..50) {
        let mut capture = Capture::new(keep);
        pieces.iter().for_each(|piece| capture.push(piece));
        let total = pieces.concat().len() as u64;
        prop_assert_eq!(capture.total_bytes(), total);
        prop_assert_eq!(capture.omitted_bytes(), total.saturating_sub(2 * keep as u64));
    }

    #[test]
    fn any_page_is_taken(html in "(<[a-z/!\"'= ]{0,8}>?|&[a-z#0-9;]{0,6}|[a-zé \n]{0,5}){0,30}") {
        let markdown = to_markdown(&html, &reqwest::Url::parse("https://example.com/").unwrap());
        prop_assert!(markdown.len() <= html.len() * 8, "{markdown:?}");
    }
}
