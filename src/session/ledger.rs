//! What a turn stores, whoever runs it: the session's own turn or a child agent's.

use std::sync::Arc;

use crate::clock;
use crate::compression::Change;
use crate::message::{Message, Usage};
use crate::provider::pricing;
use crate::store::{ApprovalRow, Store, ToolCallRow, TurnRow, Write};
use crate::turn::TurnReport;
use crate::turn::port::{Record, RecordError, ToolCallRecord};

use super::replay;

/// Where the records of one turn go.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) store: Store,
    pub(super) session_id: Arc<str>,
    pub(super) turn_id: Arc<str>,
    pub(super) started_at_ms: i64,
    /// Sessions whose usage counts this turn's model calls too: those that a child agent works for.
    pub(super) also_counted_in: Vec<Arc<str>>,
}

impl Ledger {
    /// The beginning of the turn: its row and the user's words.
    pub(super) fn begin(&self, message: &Message) -> [Write; 2] {
        let session_id = self.session_id.to_string();
        let turn = TurnRow {
            id: self.turn_id.to_string(),
            session_id: session_id.clone(),
            status: "running".into(),
            exit_reason: None,
            steps: 0,
            api_calls: 0,
            usage: Usage::default(),
            started_at_ms: self.started_at_ms,
            ended_at_ms: None,
        };
        let turn_id = Some(self.turn_id.to_string());
        [Write::StartTurn(turn), Write::AppendMessage { session_id, turn_id, message: message.clone() }]
    }

    /// Stores, all or nothing.
    ///
    /// # Errors
    /// When nothing was stored.
    pub(super) async fn record(&self, records: Vec<Record>) -> Result<(), RecordError> {
        let mut writes = Vec::with_capacity(records.len());
        for record in records {
            self.add(record, &mut writes);
        }
        self.store.write(writes).await.map_err(|error| RecordError(error.to_string()))
    }

    fn add(&self, record: Record, writes: &mut Vec<Write>) {
        let session_id = self.session_id.to_string();
        let turn_id = self.turn_id.to_string();
        let write = match record {
            Record::Message(message) => Write::AppendMessage { session_id, turn_id: Some(turn_id), message },
            Record::Amended(message) => Write::AmendMessage { session_id, turn_id: Some(turn_id), message },
            Record::Compacted(Change { before, dropped, rewritten, summary }) => {
                Write::Compact { session_id, before, dropped, rewritten, summary }
            }
            Record::ToolCall(call) => Write::PutToolCall { session_id, row: tool_call_row(turn_id, call) },
            Record::Approval { tool_call_id, answer, remembered } => Write::RecordApproval {
                session_id,
                row: ApprovalRow { tool_call_id, turn_id, outcome: answer.as_str().into(), remembered },
            },
            Record::Usage { provider, model, usage } => {
                let cost_micros = pricing::cost_usd(&provider, &model, &usage).map(micros);
                for session in &self.also_counted_in {
                    let (session_id, provider, model) = (session.to_string(), provider.clone(), model.clone());
                    writes.push(Write::AddUsage { session_id, provider, model, usage, cost_micros });
                }
                Write::AddUsage { session_id, provider, model, usage, cost_micros }
            }
            Record::End(report) => Write::FinishTurn(self.finished_row(&report)),
        };
        writes.push(write);
    }

    fn finished_row(&self, report: &TurnReport) -> TurnRow {
        TurnRow {
            id: report.turn_id.clone(),
            session_id: self.session_id.to_string(),
            status: report.status().as_str().into(),
            exit_reason: Some(report.exit.as_str().into()),
            steps: report.steps,
            api_calls: report.api_calls,
            usage: report.usage,
            started_at_ms: self.started_at_ms,
            ended_at_ms: Some(clock::now_ms()),
        }
    }
}

fn tool_call_row(turn_id: String, call: ToolCallRecord) -> ToolCallRow {
    ToolCallRow {
        id: call.id.clone(),
        turn_id,
        name: call.name.clone(),
        status: call.state.as_str().into(),
        display: replay::stored_display(&call),
    }
}

/// US dollars as the store counts them.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cost is small and not negative")]
pub(super) fn micros(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}
