//! Refused requests that no rule of the default policy logs: reads of users, requests of nodes and
//! of the controllers. Their metadata is logged up to a limit for each sender, so that somebody
//! who is refused without end neither fills the disk nor rotates the other events away.
//!
//! Requests without credentials are left out: they are no one's, and anybody can send them.

use std::cell::RefCell;
use std::collections::HashMap;

use auth::User;
use base::clock;
use http::{Request, StatusCode, request};
use jiff::Timestamp;
use parking_lot::Mutex;
use tracing::warn;

use super::request::AuditedRequest;
use super::{Audit, AuditNotes, AuditRecord, AuditStage, NOTES};
use crate::access::identity::{self, Transport};
use crate::api::Api;
use crate::extension::SourceAddress;
use crate::http::body::RequestBody;
use crate::http::respond::HttpReply;

/// Lines in a minute for the refusals of one sender.
const MOST_OF_SENDER: u32 = 60;
/// The same for all senders of a kind.
const MOST_IN_TOTAL: u32 = 600;

/// The senders that are known have a limit of their own: strangers do not use it up.
#[derive(Debug, Default)]
pub(super) struct RefusalLimits {
    users: Mutex<RefusalRate>,
    strangers: Mutex<RefusalRate>,
}

/// The lines of the current minute.
#[derive(Debug, Default)]
struct RefusalRate {
    minute: i64,
    total: u32,
    /// At most `MOST_IN_TOTAL` senders.
    by_sender: HashMap<String, u32>,
    left_out: u64,
}

impl RefusalRate {
    /// Whether there is room for one more line of a sender.
    fn admit(&mut self, sender: &str, now: Timestamp) -> bool {
        let minute = now.as_second() / 60;
        if minute != self.minute {
            *self = Self { minute, ..Self::default() };
        }
        let own = self.by_sender.get(sender).copied().unwrap_or(0);
        if own >= MOST_OF_SENDER || self.total >= MOST_IN_TOTAL {
            self.left_out += 1;
            return false;
        }
        self.by_sender.insert(sender.to_owned(), own + 1);
        self.total += 1;
        true
    }
}

impl RefusalLimits {
    fn admit(&self, sender: &RefusedSender, now: Timestamp) -> bool {
        let (rate, name) = match sender {
            RefusedSender::Anonymous => return false,
            RefusedSender::Known { acting, .. } => (&self.users, &acting.name),
            RefusedSender::Unknown { address } => (&self.strangers, address),
        };
        let mut rate = rate.lock();
        let admitted = rate.admit(name, now);
        if !admitted && rate.left_out == 1 {
            warn!(sender = name, "too many refused requests; the audit log leaves some out");
        }
        admitted
    }
}

/// Whose request was refused.
enum RefusedSender {
    /// No credentials.
    Anonymous,
    /// `acting` is another user if the sender impersonates one.
    Known { sender: User, acting: User },
    /// The credentials are wrong, expired or revoked.
    Unknown { address: String },
}

impl RefusedSender {
    fn of(api: &Api, transport: &Transport, parts: &request::Parts) -> Self {
        let Ok(sender) = identity::authenticate(api, transport, parts) else {
            let address = parts.extensions.get::<SourceAddress>();
            let address = address.map(|remote| remote.0.ip().to_string()).unwrap_or_default();
            return Self::Unknown { address };
        };
        if sender.is_anonymous() {
            return Self::Anonymous;
        }
        let acting = identity::impersonate(api, sender.clone(), &parts.headers);
        Self::Known { acting: acting.unwrap_or_else(|_| sender.clone()), sender }
    }
}

impl Api {
    /// Answers a request that no rule logs, and logs it if it is refused and the policy says so.
    pub(super) async fn answer_unlogged(
        &self,
        audit: &Audit,
        request: Request<RequestBody>,
        transport: &Transport,
        id: &str,
    ) -> HttpReply {
        // The REST API finds out what a user may list by trying. If it refuses the user's own request,
        // that is logged.
        let is_attempt = matches!(transport, Transport::InProcess(_))
            && request.headers().contains_key("impersonate-user");
        if is_attempt || !audit.policy.logs_refusals() {
            return self.answer_request(request, transport).await;
        }
        let received = clock::now();
        let copy = copy_of(&request);
        let notes = AuditNotes { only_refusal: true, ..AuditNotes::default() };
        let work = Box::pin(self.answer_request(request, transport));
        let (reply, notes) = NOTES
            .scope(RefCell::new(notes), async {
                let reply = work.await;
                (reply, NOTES.with(|notes| notes.take()))
            })
            .await;
        if !matches!(reply.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return reply;
        }
        let sender = RefusedSender::of(self, transport, &copy);
        if !audit.refusals.admit(&sender, received) {
            return reply;
        }
        let path = percent_encoding::percent_decode_str(copy.uri.path()).decode_utf8_lossy();
        let mut asked = AuditedRequest::new(&copy, &path);
        asked.received = received;
        let mut record = refusal(audit, &asked, &copy, &sender, id);
        record.add(notes);
        let is_resource = asked.resource.is_some();
        record.finish(reply, is_resource).await
    }
}

fn refusal(
    audit: &Audit,
    asked: &AuditedRequest<'_>,
    parts: &request::Parts,
    sender: &RefusedSender,
    id: &str,
) -> AuditRecord {
    let verdict = audit.policy.judge_refusal();
    let event = match sender {
        RefusedSender::Known { sender, acting } => {
            let mut event = asked.event(parts, sender, id, &verdict);
            if acting != sender {
                event["impersonatedUser"] = acting.to_user_info();
            }
            event
        }
        RefusedSender::Anonymous => asked.event(parts, &User::anonymous(), id, &verdict),
        RefusedSender::Unknown { .. } => asked.event(parts, &User::default(), id, &verdict),
    };
    debug_assert!(verdict.wants(AuditStage::ResponseComplete), "a refusal has one line");
    AuditRecord { event, verdict, sinks: audit.sinks.clone(), ended: false }
}

/// The part of an event about a request, without the rest of it.
fn copy_of(request: &Request<RequestBody>) -> request::Parts {
    let mut copy = Request::new(()).into_parts().0;
    copy.method = request.method().clone();
    copy.uri = request.uri().clone();
    copy.headers = request.headers().clone();
    if let Some(address) = request.extensions().get::<SourceAddress>() {
        copy.extensions.insert(*address);
    }
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_who_is_refused_without_end_has_a_limited_number_of_lines() {
        let mut rate = RefusalRate::default();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let lines = (0..1000).filter(|_| rate.admit("mallory", now)).count();
        assert_eq!(lines, MOST_OF_SENDER as usize);
        assert_eq!(rate.left_out, 1000 - u64::from(MOST_OF_SENDER));
        assert!(rate.admit("jane", now), "others are logged");
        let next = Timestamp::from_second(1_800_000_060).unwrap();
        assert!(rate.admit("mallory", next), "a new minute");
        assert_eq!((rate.total, rate.left_out), (1, 0));
    }

    #[test]
    fn strangers_do_not_use_up_the_lines_of_users() {
        let limits = RefusalLimits::default();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let unknown = |at: u32| RefusedSender::Unknown { address: format!("address {at}") };
        let lines = (0..5000).filter(|at| limits.admit(&unknown(*at), now)).count();
        assert_eq!(lines, MOST_IN_TOTAL as usize);
        assert_eq!(limits.strangers.lock().by_sender.len(), MOST_IN_TOTAL as usize);
        let node = User::new("system:node:two", ["system:nodes"]);
        let node = RefusedSender::Known { sender: node.clone(), acting: node };
        assert!(limits.admit(&node, now));
        assert!(!limits.admit(&RefusedSender::Anonymous, now), "anybody can send these");
    }

    #[test]
    fn a_refusal_has_a_line_with_its_sender_and_no_bodies() {
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
                      omitStages: [RequestReceived]\nrules: [{level: None}]";
        let policy = super::super::AuditPolicy::parse(policy).unwrap().with_refusals();
        let audit =
            Audit { policy, sinks: std::sync::Arc::default(), refusals: RefusalLimits::default() };
        let parts = Request::get("/api/v1/namespaces/victim/secrets/x").body(()).unwrap();
        let parts = parts.into_parts().0;
        let asked = AuditedRequest::new(&parts, parts.uri.path());
        let sender = RefusedSender::Known {
            sender: User::new("system:admin", ["system:masters"]),
            acting: User::new("mallory", ["tenants"]),
        };
        let record = refusal(&audit, &asked, &parts, &sender, "1");
        assert_eq!(record.event["level"], "Metadata");
        assert_eq!(record.event["user"]["username"], "system:admin");
        assert_eq!(record.event["impersonatedUser"]["username"], "mallory");
        assert_eq!(record.event["objectRef"]["resource"], "secrets");
        assert!(!record.verdict.wants(AuditStage::RequestReceived));
    }
}
