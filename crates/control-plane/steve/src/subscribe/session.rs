//! One connection of a subscriber.
//!
//! One task reads the client's messages and the watches, and writes what they bring. It holds
//! no queue: a client that reads slowly makes the watches wait, and a watch that falls too far
//! behind is ended by the API server, which the client receives as `resource.error`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Caller, Catalog, CatalogKind};
use futures_util::stream::{self, AbortHandle, BoxStream, SelectAll, StreamExt as _};
use futures_util::{FutureExt as _, SinkExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::encoded::EncodedKey;
use super::message::{self, SubscribeMessage, SubscriptionKey, WatchEvent};
use crate::Steve;
use crate::caller::{Session, WatchLines};
use crate::envelope::{self, EnvelopeContext};
use crate::error::SteveError;
use crate::object_rights::{self, ObjectRights};
use crate::objects;
use crate::type_name;

/// Rancher's clients expect a message at least this often.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// A client that takes nothing for this long is disconnected.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Links and actions follow changes of roles after this time at most.
const RIGHTS_LIFETIME: Duration = Duration::from_secs(10);
const MAX_SUBSCRIPTIONS: usize = 512;
/// Messages of clients are small.
const MAX_MESSAGE: usize = 64 << 10;
/// Types that change with every other one: they have no events of their own.
const WITHOUT_EVENTS: [&str; 4] = ["count", "counts", "schema", "schemas"];

/// The subscriber, and the prefix of links to this server.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) caller: Caller,
    pub(super) origin: String,
    pub(super) prefix: &'static str,
}

/// An item of a watch: a line, or its end.
type WatchItem = (u64, Option<Bytes>);

struct Subscription {
    number: u64,
    key: SubscriptionKey,
    catalog: Arc<Catalog>,
    /// Nothing for types without events.
    kind: Option<Arc<CatalogKind>>,
    audience: Arc<str>,
    watches: Vec<AbortHandle>,
}

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum SubscriberGone {
    #[error("the client closed the connection")]
    Closed,
    #[error("the client took no message for {} s", SEND_TIMEOUT.as_secs())]
    Slow,
}

pub(super) async fn serve(steve: Steve, subscriber: Subscriber, upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(limits)).await;
    let mut connection = SubscriberConnection {
        steve,
        subscriber,
        socket,
        watches: SelectAll::new(),
        subscriptions: BTreeMap::new(),
        rights: BTreeMap::new(),
        last_number: 0,
    };
    if let Err(SubscriberGone::Closed) = connection.run().await {
        let _ = tokio::time::timeout(Duration::from_secs(2), connection.socket.close(None)).await;
    }
}

struct SubscriberConnection {
    steve: Steve,
    subscriber: Subscriber,
    socket: WebSocketStream<TokioIo<Upgraded>>,
    watches: SelectAll<BoxStream<'static, WatchItem>>,
    subscriptions: BTreeMap<SubscriptionKey, Subscription>,
    /// By type and namespace.
    rights: BTreeMap<(String, String), (Instant, ObjectRights)>,
    last_number: u64,
}

impl SubscriberConnection {
    async fn run(&mut self) -> Result<(), SubscriberGone> {
        let mut pings = tokio::time::interval(PING_INTERVAL);
        pings.reset();
        loop {
            tokio::select! {
                message = self.socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.receive(text.as_bytes()).await?,
                    Some(Ok(Message::Binary(bytes))) => self.receive(&bytes).await?,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => {
                        return Err(SubscriberGone::Closed);
                    }
                    Some(Ok(_)) => {}
                },
                Some((number, line)) = self.watches.next(), if !self.watches.is_empty() => {
                    self.forward(number, line).await?;
                }
                _ = pings.tick() => self.send(r#"{"name":"ping"}"#).await?,
            }
        }
    }

    async fn send(&mut self, text: impl Into<Utf8Bytes>) -> Result<(), SubscriberGone> {
        let sent = self.socket.send(Message::Text(text.into()));
        match tokio::time::timeout(SEND_TIMEOUT, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SubscriberGone::Closed),
            Err(_) => Err(SubscriberGone::Slow),
        }
    }

    /// A message of the client.
    async fn receive(&mut self, bytes: &[u8]) -> Result<(), SubscriberGone> {
        let asked: SubscribeMessage = match serde_json::from_slice(bytes) {
            Ok(asked) => asked,
            Err(error) => {
                let message = format!("the message is not a subscription: {error}");
                return self.send(SubscriptionKey::default().error(&message)).await;
            }
        };
        if asked.stop {
            return self.stop(&asked.key).await;
        }
        if self.subscriptions.contains_key(&asked.key) {
            return Ok(());
        }
        if self.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let message = format!("a connection has at most {MAX_SUBSCRIPTIONS} subscriptions");
            return self.send(asked.key.error(&message)).await;
        }
        match self.subscribe(&asked).await {
            Ok(()) => self.send(asked.key.notice("resource.start")).await,
            Err(error) => {
                self.send(asked.key.error(&error.message)).await?;
                self.send(asked.key.notice("resource.stop")).await
            }
        }
    }

    async fn stop(&mut self, key: &SubscriptionKey) -> Result<(), SubscriberGone> {
        let Some(subscription) = self.subscriptions.remove(key) else { return Ok(()) };
        subscription.watches.iter().for_each(AbortHandle::abort);
        self.send(key.notice("resource.stop")).await
    }

    async fn subscribe(&mut self, asked: &SubscribeMessage) -> Result<(), SteveError> {
        let kinds = &self.steve.kinds;
        let (catalog, kind) = if WITHOUT_EVENTS.contains(&&*asked.key.resource_type) {
            (kinds.get(&self.steve.client).await?, None)
        } else {
            let found = kinds.find(&self.steve.client, &asked.key.resource_type).await;
            let (catalog, kind) = found.map_err(|error| match error.code.as_str() {
                "NotFound" => SteveError::not_found(format!(
                    "failed to find schema {}",
                    asked.key.resource_type
                )),
                _ => error,
            })?;
            if !kind.can(client::Verb::Watch) {
                let message =
                    format!("schema {} does not support watching", asked.key.resource_type);
                return Err(SteveError::bad_request(message));
            }
            (catalog, Some(kind))
        };
        let lines = match &kind {
            Some(kind) => watch(&self.steve, &self.subscriber.caller, kind, asked).await?,
            None => Vec::new(),
        };
        self.last_number += 1;
        let number = self.last_number;
        let mut watches = Vec::with_capacity(lines.len());
        for lines in lines {
            let lines = stream::unfold(lines, |mut lines| async move {
                let line = lines.next().await?;
                Some((line, lines))
            });
            let items = lines.map(move |line| (number, Some(line)));
            let end = futures_util::future::ready((number, None)).into_stream();
            let (items, handle) = stream::abortable(items.chain(end));
            self.watches.push(items.boxed());
            watches.push(handle);
        }
        let audience = self.audience(&asked.key);
        let key = asked.key.clone();
        let subscription =
            Subscription { number, key: key.clone(), catalog, kind, audience, watches };
        self.subscriptions.insert(key, subscription);
        Ok(())
    }

    /// Everything but the event that a message depends on.
    fn audience(&self, key: &SubscriptionKey) -> Arc<str> {
        let Subscriber { caller, origin, prefix } = &self.subscriber;
        format!("{caller:?} {origin:?} {prefix} {key:?}").into()
    }

    /// Passes on what a watch brought.
    async fn forward(&mut self, number: u64, line: Option<Bytes>) -> Result<(), SubscriberGone> {
        let mut subscriptions = self.subscriptions.values();
        let Some(found) = subscriptions.find(|own| own.number == number) else { return Ok(()) };
        let key = found.key.clone();
        let Some(line) = line else {
            // A watch of one namespace ended: the client starts again with all of them.
            return self.stop(&key).await;
        };
        let encoded = EncodedKey { audience: found.audience.clone(), line };
        if let Some(message) = self.steve.encoded.get(&encoded) {
            return self.send(message).await;
        }
        match message::read_event(&encoded.line) {
            WatchEvent::Bookmark => Ok(()),
            WatchEvent::Failed(message) => {
                self.send(key.error(&message)).await?;
                self.stop(&key).await
            }
            WatchEvent::Object(name, object) => match self.encode(&key, name, object).await {
                Ok(Some(message)) => {
                    let message = Utf8Bytes::from(message);
                    self.steve.encoded.insert(encoded, message.clone());
                    self.send(message).await
                }
                Ok(None) => Ok(()),
                Err(error) => {
                    self.send(key.error(&error.message)).await?;
                    self.stop(&key).await
                }
            },
        }
    }

    async fn encode(
        &mut self,
        key: &SubscriptionKey,
        name: &str,
        object: serde_json::Value,
    ) -> Result<Option<String>, SteveError> {
        let Some(subscription) = self.subscriptions.get(key) else { return Ok(None) };
        let (catalog, kind) = (subscription.catalog.clone(), subscription.kind.clone());
        let row = envelope::rows(object).into_iter().next();
        let (Some(kind), Some(row)) = (kind, row) else { return Ok(None) };
        let namespace = row.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let key_of_rights = self.refresh_rights(&kind, &row.object).await?;
        let session = Session { client: &self.steve.client, caller: &self.subscriber.caller };
        let pods = objects::pods(&session, &kind, &namespace).await;
        let context = EnvelopeContext {
            kind: &kind,
            catalog: &catalog,
            origin: &self.subscriber.origin,
            prefix: self.subscriber.prefix,
            pods: &pods,
        };
        let Some((_, rights)) = self.rights.get(&key_of_rights) else { return Ok(None) };
        let resource = envelope::wrap(&context, row, rights);
        Ok(Some(key.change(name, &type_name::id(&kind), resource)))
    }

    /// Asks for the rights on an object unless they are known, and says where they are kept.
    async fn refresh_rights(
        &mut self,
        kind: &CatalogKind,
        object: &serde_json::Value,
    ) -> Result<(String, String), SteveError> {
        let namespace = object_rights::namespace_of(kind, object);
        let key = (type_name::id(kind), namespace.to_owned());
        let known = self.rights.get(&key);
        if known.is_some_and(|(since, _)| since.elapsed() < RIGHTS_LIFETIME) {
            return Ok(key);
        }
        let session = Session { client: &self.steve.client, caller: &self.subscriber.caller };
        let rights = object_rights::ask(&session, kind, namespace).await?;
        // Of namespaces that are gone nothing is asked any more.
        self.rights.retain(|_, (since, _)| since.elapsed() < RIGHTS_LIFETIME);
        self.rights.insert(key.clone(), (Instant::now(), rights));
        Ok(key)
    }
}

/// Watches as the caller: all namespaces, or each of those that the caller may watch.
async fn watch(
    steve: &Steve,
    caller: &Caller,
    kind: &CatalogKind,
    asked: &SubscribeMessage,
) -> Result<Vec<WatchLines>, SteveError> {
    let session = Session { client: &steve.client, caller };
    let query = asked.watch_query();
    let namespace = if kind.namespaced { asked.key.watched_namespace() } else { "" };
    let refused = match session.watch(&format!("{}?{query}", kind.path(namespace))).await {
        Ok(lines) => return Ok(vec![lines]),
        Err(error) => error,
    };
    let spans = kind.namespaced && namespace.is_empty();
    if refused.status != http::StatusCode::FORBIDDEN || !spans {
        return Err(refused);
    }
    let mut all = Vec::new();
    for namespace in steve.namespaces().await? {
        match session.watch(&format!("{}?{query}", kind.path(&namespace))).await {
            Ok(lines) => all.push(lines),
            Err(error) if error.status == http::StatusCode::FORBIDDEN => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() { Err(refused) } else { Ok(all) }
}
