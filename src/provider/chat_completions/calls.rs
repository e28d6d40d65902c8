//! Tool calls, put together from their deltas.
//!
//! The format says: `index` names the call, `id` and `name` come once, `arguments` in pieces. Servers leave out
//! each of these, repeat them in every delta, or count every call as number 0. The rule here: a delta belongs to
//! the call it names; it begins a new one when it brings a name and what it names is another or already whole.

use serde_json::Value;

use super::wire::{CallDelta, FunctionDelta, is_complete_json};
use crate::message::ToolCall;
use crate::provider::draft::settle_ids;
use crate::provider::json::{HalfJoiner, JsonReader, without_halves};

/// The most calls one answer may have; far above what any model asks for.
const MAX_CALLS: usize = 1024;

/// One call so far.
#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    joiner: HalfJoiner,
    extra: Option<Value>,
    /// The list of deltas that touched it last.
    touched: u64,
}

/// What one delta says.
struct Part<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: &'a str,
}

/// All calls of one answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    lists: u64,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many calls have begun.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Takes the `tool_calls` of one delta. Returns the names of the calls that began, or `None` when there are
    /// more calls than any model asks for.
    #[must_use]
    pub(super) fn take(&mut self, deltas: &[CallDelta<'_>]) -> Option<Vec<String>> {
        self.lists += 1;
        let mut began = Vec::new();
        for delta in deltas {
            let function = delta.function.as_ref();
            let part = Part {
                index: delta.index.0.trim().parse().ok(),
                id: delta.id.0.trim(),
                name: function.map_or("", |function| function.name.0.trim()),
                arguments: function.map_or("", |function| &function.arguments.0),
            };
            let extra = delta.extra_content.and_then(|raw| serde_json::from_str(raw.get()).ok());
            if part.id.is_empty() && part.name.is_empty() && part.arguments.is_empty() && extra.is_none() {
                continue;
            }
            if !self.repeats(&part) {
                began.extend(self.add(&part, extra));
            }
        }
        (self.slots.len() <= MAX_CALLS).then_some(began)
    }

    /// Takes a delta of the older format, which knows one call.
    pub(super) fn take_legacy(&mut self, function: &FunctionDelta<'_>) -> Option<String> {
        self.lists += 1;
        let part = Part { index: Some(0), id: "", name: function.name.0.trim(), arguments: &function.arguments.0 };
        self.add(&part, None)
    }

    /// Returns the call's name when it just became known.
    fn add(&mut self, part: &Part<'_>, extra: Option<Value>) -> Option<String> {
        let at = self.find(part).unwrap_or_else(|| {
            self.slots.push(Slot { index: part.index, ..Slot::default() });
            self.slots.len() - 1
        });
        let touched = self.lists;
        let slot = self.slots.get_mut(at)?;
        slot.touched = touched;
        if slot.id.is_empty() {
            part.id.clone_into(&mut slot.id);
        }
        let is_new = slot.name.is_empty() && !part.name.is_empty();
        if is_new || part.name.starts_with(&slot.name) {
            if !part.name.is_empty() {
                part.name.clone_into(&mut slot.name);
            }
        } else if slot.arguments.is_empty() && !slot.name.starts_with(part.name) {
            slot.name.push_str(part.name);
        }
        let piece = slot.joiner.join(part.arguments);
        slot.arguments.push_str(&piece);
        if extra.is_some() {
            slot.extra = extra;
        }
        is_new.then(|| slot.name.clone())
    }

    /// True for a call that is told once more, whole: same place, same arguments, in a later delta that names no
    /// other call.
    fn repeats(&self, part: &Part<'_>) -> bool {
        let is_same = |word: &str, known: &str| word.is_empty() || word == known;
        let same = |slot: &Slot| {
            slot.touched != self.lists
                && slot.index == part.index
                && is_same(part.id, &slot.id)
                && is_same(part.name, &slot.name)
                && is_same_json(&slot.arguments, part.arguments)
        };
        // A name without an id may begin a second call of the same kind.
        let names_itself = !part.id.is_empty() || part.name.is_empty();
        part.index.is_some() && names_itself && self.slots.iter().any(same)
    }

    /// The call a delta goes on with; `None` when it begins one.
    fn find(&self, part: &Part<'_>) -> Option<usize> {
        let same_id = |slot: &Slot| !part.id.is_empty() && slot.id == part.id;
        let last = self.slots.len().checked_sub(1);
        let at = if let Some(index) = part.index {
            let here = |slot: &Slot| slot.index == Some(index);
            let own = self.slots.iter().rposition(|slot| here(slot) && same_id(slot));
            own.or_else(|| self.slots.iter().rposition(here))
        } else if let Some(at) = self.slots.iter().rposition(same_id) {
            Some(at)
        } else if part.name.is_empty() {
            last
        } else {
            last.filter(|at| self.slots.get(*at).is_some_and(|slot| slot.name == part.name))
        }?;
        let slot = self.slots.get(at)?;
        if part.name.is_empty() {
            return Some(at);
        }
        // Some servers make up a new id for each piece of one call.
        let goes_on = slot.name == part.name && !slot.arguments.is_empty() && !opens_object(part.arguments);
        let other_id = !part.id.is_empty() && !slot.id.is_empty() && slot.id != part.id && !goes_on;
        let twice_in_one_list = part.index.is_none() && slot.touched == self.lists;
        let is_whole = || !part.arguments.trim().is_empty() && is_complete_json(&slot.arguments);
        let other_name = || !slot.arguments.is_empty() && !slot.name.is_empty() && slot.name != part.name;
        let begins = other_id || twice_in_one_list || is_whole() || other_name();
        (!begins).then_some(at)
    }

    /// The calls in the order of their places, each with an id that no other has. Calls without a name stay: the
    /// model is told about them.
    pub(super) fn finish(mut self) -> Vec<ToolCall> {
        if self.slots.iter().all(|slot| slot.index.is_some()) {
            self.slots.sort_by_key(|slot| slot.index);
        }
        let mut calls: Vec<ToolCall> = Vec::with_capacity(self.slots.len());
        for mut slot in self.slots {
            slot.arguments.push_str(slot.joiner.finish());
            let (name, arguments) = (without_halves(&slot.name).into_owned(), repair_halves(slot.arguments));
            calls.push(ToolCall { id: slot.id, name, arguments, extra: slot.extra });
        }
        settle_ids(&mut calls);
        calls
    }
}

/// True for a piece of arguments that may be their beginning. An empty one says nothing and may be, too.
fn opens_object(piece: &str) -> bool {
    let piece = piece.trim_start();
    piece.is_empty() || piece.starts_with('{')
}

/// True when both are complete and say the same, whatever their blanks.
fn is_same_json(one: &str, other: &str) -> bool {
    let value = |text: &str| is_complete_json(text).then(|| serde_json::from_str::<Value>(text).ok()).flatten();
    value(other).is_some_and(|other| value(one) == Some(other))
}

/// Arguments are JSON inside JSON, so halves of a pair can stand in them escaped once more.
fn repair_halves(arguments: String) -> String {
    if !arguments.contains("\\u") || serde_json::from_str::<Value>(&arguments).is_ok() {
        return arguments;
    }
    match JsonReader::default().parse::<Value>(&arguments) {
        Ok(value) => without_halves(&value.to_string()).into_owned(),
        Err(_) => arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line is the `tool_calls` list of one delta; the result is `name(arguments)` per call.
    fn check(deltas: &[&str], expect: &[&str]) -> Vec<ToolCall> {
        let mut calls = Calls::default();
        for delta in deltas {
            let list: Vec<CallDelta<'_>> = serde_json::from_str(delta).unwrap();
            calls.take(&list).unwrap();
        }
        let calls = calls.finish();
        let got: Vec<_> = calls.iter().map(|call| format!("{}({})", call.name, call.arguments)).collect();
        assert_eq!(got, expect, "{deltas:?}");
        let mut ids: Vec<_> = calls.iter().map(|call| &call.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), calls.len(), "ids are unique: {deltas:?}");
        calls
    }

    #[test]
    fn pieces_with_and_without_an_index_join() {
        check(
            &[
                r#"[{"index":0,"id":"c1","function":{"name":"t","arguments":""}}]"#,
                r#"[{"index":0,"function":{"arguments":"{\"a\""}}]"#,
                r#"[{"index":0,"function":{"arguments":":1}"}}]"#,
            ],
            &[r#"t({"a":1})"#],
        );
        check(
            &[
                r#"[{"id":"c1","function":{"name":"t","arguments":"{\"a\""}}]"#,
                r#"[{"function":{"arguments":":1}"}}]"#,
                r#"[{"id":"c2","function":{"name":"u","arguments":"{"}}]"#,
                r#"[{"id":"c2","function":{"arguments":"}"}}]"#,
            ],
            &[r#"t({"a":1})"#, "u({})"],
        );
        check(
            &[
                r#"[{"index":"0","id":"a","function":{"name":"t","arguments":"{"}},
                    {"index":"1","id":"b","function":{"name":"t","arguments":"["}}]"#,
                r#"[{"index":"1","function":{"arguments":"]"}},{"index":"0","function":{"arguments":"}"}}]"#,
            ],
            &["t({})", "t([])"],
        );
    }

    #[test]
    fn whole_calls_without_an_index_stay_apart() {
        check(
            &[
                r#"[{"id":"a","function":{"name":"t","arguments":"{}"}},{"id":"b","function":{"name":"t","arguments":"{}"}}]"#,
            ],
            &["t({})", "t({})"],
        );
        check(
            &[r#"[{"function":{"name":"t","arguments":"{}"}},{"function":{"name":"t","arguments":"{}"}}]"#],
            &["t({})", "t({})"],
        );
        check(
            &[
                r#"[{"index":0,"function":{"name":"t","arguments":"{}"}}]"#,
                r#"[{"index":0,"function":{"name":"t","arguments":"{\"x\":2}"}}]"#,
            ],
            &["t({})", r#"t({"x":2})"#],
        );
    }

    #[test]
    fn a_call_that_is_told_again_whole_is_one_call() {
        let whole = r#"[{"index":0,"id":"c1","function":{"name":"t","arguments":"{\"a\":1}"}}]"#;
        check(&[whole, whole], &[r#"t({"a":1})"#]);
        let twice = r#"[{"index":0,"id":"c1","function":{"name":"t","arguments":"{}"}},
                        {"index":1,"id":"c1","function":{"name":"t","arguments":"{}"}}]"#;
        check(&[twice], &["t({})", "t({})"]);
    }

    #[test]
    fn arguments_told_again_whole_in_other_blanks_or_without_id_and_name_are_told_once() {
        let pieces = [
            r#"[{"index":0,"id":"c1","function":{"name":"t","arguments":"{\"a\":"}}]"#,
            r#"[{"index":0,"function":{"arguments":"1}"}}]"#,
        ];
        for again in [
            r#"[{"index":0,"function":{"arguments":"{\"a\": 1}"}}]"#,
            r#"[{"index":0,"id":"c1","function":{"name":"t","arguments":"{ \"a\":1 }"}}]"#,
        ] {
            check(&[pieces[0], pieces[1], again], &[r#"t({"a":1})"#]);
        }
    }

    #[test]
    fn calls_of_one_index_are_told_apart_by_their_ids() {
        check(
            &[
                r#"[{"index":0,"id":"a","function":{"name":"t","arguments":""}}]"#,
                r#"[{"index":0,"id":"b","function":{"name":"t","arguments":""}}]"#,
                r#"[{"index":0,"id":"a","function":{"arguments":"{\"x\":1}"}}]"#,
                r#"[{"index":0,"id":"b","function":{"arguments":"{\"x\":2}"}}]"#,
            ],
            &[r#"t({"x":1})"#, r#"t({"x":2})"#],
        );
    }

    #[test]
    fn a_new_id_on_each_piece_of_one_call_changes_nothing() {
        let calls = check(
            &[
                r#"[{"index":0,"id":"r1","function":{"name":"t","arguments":"{\"a\":"}}]"#,
                r#"[{"index":0,"id":"r2","function":{"name":"t","arguments":"[1"}}]"#,
                r#"[{"index":0,"id":"r3","function":{"name":"t","arguments":"]}"}}]"#,
            ],
            &[r#"t({"a":[1]})"#],
        );
        assert_eq!(calls[0].id, "r1");
    }

    #[test]
    fn calls_stand_in_the_order_of_their_indices() {
        check(
            &[
                r#"[{"index":1,"id":"b","function":{"name":"u","arguments":"{}"}}]"#,
                r#"[{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}}]"#,
            ],
            &["t({})", "u({})"],
        );
    }

    #[test]
    fn one_index_with_a_new_id_and_name_is_a_new_call() {
        check(
            &[
                r#"[{"index":0,"id":"a","function":{"name":"t","arguments":""}}]"#,
                r#"[{"index":0,"id":"b","function":{"name":"t","arguments":"{}"}}]"#,
            ],
            &["t()", "t({})"],
        );
        check(
            &[
                r#"[{"index":0,"id":"a","function":{"name":"t","arguments":"{"}}]"#,
                r#"[{"index":0,"id":"random","function":{"arguments":"}"}}]"#,
            ],
            &["t({})"],
        );
    }

    #[test]
    fn repeated_and_blank_ids_and_names_change_nothing() {
        let repeated = r#"[{"index":0,"id":"c1","type":"function","function":{"name":"t","arguments":"X"}}]"#;
        let pieces = ["{\\\"a\\\":", "[1,", "2]", "}"].map(|piece| repeated.replace('X', piece));
        let calls = check(&pieces.each_ref().map(String::as_str), &[r#"t({"a":[1,2]})"#]);
        assert_eq!(calls[0].id, "c1");
        let calls = check(
            &[
                r#"[{"index":0,"id":"c1","function":{"name":"t"}}]"#,
                r#"[{"index":0,"id":"","function":{"name":"","arguments":"{\"a\":"}}]"#,
                r#"[{"index":0,"id":"","function":{"name":null,"arguments":"1}"}}]"#,
            ],
            &[r#"t({"a":1})"#],
        );
        assert_eq!(calls[0].id, "c1");
    }

    #[test]
    fn a_repeated_name_without_id_and_index_is_a_continuation() {
        check(
            &[
                r#"[{"function":{"name":"t","arguments":"{\"a\""}}]"#,
                r#"[{"function":{"name":"t","arguments":":1}"}}]"#,
            ],
            &[r#"t({"a":1})"#],
        );
    }

    #[test]
    fn a_name_in_pieces_is_joined_and_a_growing_one_replaced() {
        check(
            &[
                r#"[{"index":0,"id":"c","function":{"name":"read_"}}]"#,
                r#"[{"index":0,"function":{"name":"file"}}]"#,
                r#"[{"index":0,"function":{"arguments":"{}"}}]"#,
            ],
            &["read_file({})"],
        );
        check(
            &[
                r#"[{"index":0,"id":"c","function":{"name":"read_"}}]"#,
                r#"[{"index":0,"id":"c","function":{"name":"read_file","arguments":"{}"}}]"#,
            ],
            &["read_file({})"],
        );
    }

    #[test]
    fn arguments_may_be_an_object() {
        check(
            &[r#"[{"id":"c","function":{"name":"t","arguments":{"p":"a.txt","n":[1]}}}]"#],
            &[r#"t({"p":"a.txt","n":[1]})"#],
        );
        check(&[r#"[{"id":"c","function":{"name":"t","arguments":null}}]"#], &["t()"]);
    }

    #[test]
    fn duplicate_ids_keep_both_calls() {
        let calls = check(
            &[r#"[{"index":0,"id":"c1","function":{"name":"t","arguments":"1"}},
                  {"index":1,"id":"c1","function":{"name":"t","arguments":"2"}}]"#],
            &["t(1)", "t(2)"],
        );
        assert_eq!(calls[0].id, "c1");
        assert_eq!(calls[1].id, "c1_2");
        check(
            &[
                r#"[{"id":"c1","function":{"name":"t","arguments":"{}"}},{"id":"c1","function":{"name":"t","arguments":"{}"}}]"#,
            ],
            &["t({})", "t({})"],
        );
    }

    #[test]
    fn missing_ids_are_made_up_the_same_way_each_time() {
        let delta = [r#"[{"id":null,"function":{"name":"t","arguments":"{}"}}]"#];
        let first = check(&delta, &["t({})"]);
        assert_eq!(first, check(&delta, &["t({})"]));
        let numeric = check(&[r#"[{"id":7,"function":{"name":"t","arguments":"{}"}}]"#], &["t({})"]);
        assert_eq!(numeric[0].id, "7");
    }

    #[test]
    fn empty_entries_begin_nothing() {
        check(&["[]", "[{}]", r#"[{"index":0,"function":null}]"#], &[]);
        let call = r#"[{"index":0,"id":"a","function":{"name":"t","arguments":"{}"}}]"#;
        let blank = r#"[{"index":1,"id":"","type":"function","function":{"name":"","arguments":""}}]"#;
        check(&[call, blank], &["t({})"]);
    }

    #[test]
    fn halves_of_a_pair_in_arguments_do_not_break_them() {
        check(
            &[r#"[{"id":"c","function":{"name":"t","arguments":"{\"a\":\"\\ud83d\"}"}}]"#],
            &["t({\"a\":\"\u{fffd}\"})"],
        );
    }

    #[test]
    fn extra_data_stays_with_its_call() {
        let calls = check(
            &[
                r#"[{"id":"c","extra_content":{"google":{"thought_signature":"s"}},"function":{"name":"t","arguments":"{}"}}]"#,
            ],
            &["t({})"],
        );
        assert_eq!(calls[0].extra, Some(serde_json::json!({"google": {"thought_signature": "s"}})));
    }
}
