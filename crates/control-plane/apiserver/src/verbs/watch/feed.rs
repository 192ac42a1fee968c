//! One watch in progress.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::{KeyedSlot, Stop};
use store::{Range, Revision, WatchError, Watcher};
use tokio::time::{Instant, sleep_until};

use crate::api::{Api, ObjectEntry, ObjectEvent};
use crate::http::negotiate::ResponseForm;
use crate::http::options::ListOptions;
use crate::schemas::conversion;
use crate::schemas::served::ServedKind;
use crate::status::{ApiError, ApiResult};
use crate::verbs::call::Call;
use crate::verbs::item::ObjectShape;
use crate::verbs::selection::Selection;
use crate::verbs::table;
use crate::verbs::watch::encode::{Encoder, WatchEventKind};

/// How many events are taken from the log at once.
const BATCH: usize = 256;
/// Chunks are sent when they have about this size.
const CHUNK: usize = 32 * 1024;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark is sent this long before the end.
const FINAL_BOOKMARK_LEAD: Duration = Duration::from_secs(2);

/// The stage of the feed.
enum FeedStage {
    /// The state at the start, still to be sent.
    State(VecDeque<ObjectEntry>, Revision),
    Live(Watcher<ObjectShape>),
    /// Nothing more is coming.
    Over,
}

/// The event that a change is for one watch, and the state of the object in that event.
type Transition = (WatchEventKind, ObjectEntry);

pub(crate) struct Feed {
    api: Api,
    served: Arc<ServedKind>,
    selection: Selection,
    encoder: Encoder,
    stage: FeedStage,
    /// Entries must be converted before they are shown.
    converts: bool,
    bookmarks: bool,
    /// Mark the end of the initial state for clients that asked for it.
    marks_end: bool,
    next_bookmark: Instant,
    ends: Instant,
    sent_final_bookmark: bool,
    stop: Stop,
    _slot: Option<KeyedSlot>,
}

impl Feed {
    pub(super) async fn new(
        call: &Call<'_>,
        options: &ListOptions,
        selection: Selection,
        wants_state: bool,
        limit: Duration,
        slot: Option<KeyedSlot>,
    ) -> ApiResult<Self> {
        let api = call.api.clone();
        let now = Instant::now();
        let stage = if wants_state {
            let range = Range { prefix: &selection.prefix, ..Range::default() };
            match api.store.list(&call.served.table, range) {
                Ok(page) => {
                    let entries = selection.select(&api, &call.served, page.entries).await?;
                    FeedStage::State(entries.into(), page.revision)
                }
                Err(_) => FeedStage::Over,
            }
        } else {
            let from = options.revision.filter(|revision| *revision != 0);
            let from = from.map_or_else(|| api.store.revision(), Revision::new);
            FeedStage::State(VecDeque::new(), from)
        };
        Ok(Self {
            stop: api.tasks.stop_signal(),
            encoder: Encoder::new(call.served.clone(), call.wanted, table::include(call.query)),
            converts: conversion::is_needed(&call.served)
                && (selection.converts() || !matches!(call.wanted.form, ResponseForm::Metadata(_))),
            served: call.served.clone(),
            selection,
            stage,
            bookmarks: options.bookmarks,
            marks_end: options.initial_events == Some(true),
            next_bookmark: now + BOOKMARK_EVERY,
            ends: now + limit,
            sent_final_bookmark: limit <= FINAL_BOOKMARK_LEAD,
            api,
            _slot: slot,
        })
    }

    /// The next chunk of the stream; `None` ends it. Cancel-safe between chunks.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            match &mut self.stage {
                FeedStage::Over => return None,
                FeedStage::State(entries, revision) if self.converts && !entries.is_empty() => {
                    let revision = *revision;
                    let batch: Vec<ObjectEntry> =
                        entries.drain(..entries.len().min(BATCH)).collect();
                    let chunk = self.converted_state(batch).await;
                    if matches!(self.stage, FeedStage::State(ref left, _) if left.is_empty()) {
                        self.stage = FeedStage::State(VecDeque::new(), revision);
                    }
                    return Some(chunk);
                }
                FeedStage::State(entries, revision) => {
                    let revision = *revision;
                    let mut chunk = Vec::new();
                    while let Some(entry) = entries.pop_front() {
                        self.encoder.object(&mut chunk, WatchEventKind::Added, &entry);
                        if chunk.len() >= CHUNK {
                            return Some(chunk);
                        }
                    }
                    self.go_live(revision, &mut chunk);
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
                FeedStage::Live(_) => {
                    let chunk = self.live().await;
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
            }
        }
    }

    fn go_live(&mut self, revision: Revision, chunk: &mut Vec<u8>) {
        if self.marks_end {
            self.encoder.bookmark(chunk, revision, true);
        }
        self.stage = match self.api.store.watch(&self.served.table, revision) {
            Ok(watcher) => FeedStage::Live(watcher),
            Err(compacted) => {
                self.encoder.error(chunk, &too_old(revision, compacted.oldest));
                FeedStage::Over
            }
        };
    }

    /// Waits for something to send. An empty chunk means: check again.
    async fn live(&mut self) -> Vec<u8> {
        let FeedStage::Live(watcher) = &mut self.stage else { return Vec::new() };
        let final_bookmark =
            if self.sent_final_bookmark { self.ends } else { self.ends - FINAL_BOOKMARK_LEAD };
        let wake = if self.bookmarks { self.next_bookmark.min(final_bookmark) } else { self.ends };
        let outcome = tokio::select! {
            events = watcher.next(BATCH) => Some(events),
            () = sleep_until(wake) => None,
            () = self.stop.requested() => {
                self.stage = FeedStage::Over;
                return Vec::new();
            }
        };
        let mut chunk = Vec::new();
        match outcome {
            Some(Ok(events)) if self.converts => {
                return self.converted_events(&events).await;
            }
            Some(Ok(events)) => {
                self.api.traffic.sent_events(events.len());
                for event in &events {
                    if let Some(transition) = self.transition(&event.old, &event.new) {
                        self.encode(&mut chunk, &transition, event);
                    }
                }
            }
            Some(Err(WatchError::Lagged { oldest })) => {
                self.encoder.error(&mut chunk, &too_old(watcher.seen(), oldest));
                self.stage = FeedStage::Over;
            }
            Some(Err(WatchError::Closed)) => self.stage = FeedStage::Over,
            None => self.tick(&mut chunk),
        }
        chunk
    }

    /// The first state, where a webhook has to convert it.
    async fn converted_state(&mut self, entries: Vec<ObjectEntry>) -> Vec<u8> {
        let mut chunk = Vec::new();
        match conversion::shown(&self.api, &self.served, entries).await {
            Ok(entries) => {
                for entry in &entries {
                    self.encoder.object(&mut chunk, WatchEventKind::Added, entry);
                }
            }
            Err(error) => self.fail(&mut chunk, &error),
        }
        chunk
    }

    /// Changes, where a webhook has to convert them.
    async fn converted_events(&mut self, events: &[Arc<ObjectEvent>]) -> Vec<u8> {
        let mut chunk = Vec::new();
        match self.converted_transitions(events).await {
            Ok(transitions) => {
                for (transition, event) in &transitions {
                    self.encode(&mut chunk, transition, event);
                }
            }
            Err(error) => self.fail(&mut chunk, &error),
        }
        chunk
    }

    /// The events of the changes for this watch, with entries in the watched version. Where the
    /// selectors read converted content, both states of an object are converted to compare
    /// them.
    async fn converted_transitions<'e>(
        &self,
        events: &'e [Arc<ObjectEvent>],
    ) -> ApiResult<Vec<(Transition, &'e ObjectEvent)>> {
        if !self.selection.converts() {
            let seen: Vec<_> = events
                .iter()
                .filter_map(|event| Some((self.transition(&event.old, &event.new)?, &**event)))
                .collect();
            let entries = seen.iter().map(|((_, entry), _)| entry.clone()).collect();
            let entries = conversion::shown(&self.api, &self.served, entries).await?;
            let shown = seen.into_iter().zip(entries);
            return Ok(shown.map(|(((kind, _), event), entry)| ((kind, entry), event)).collect());
        }
        let events: Vec<&ObjectEvent> = events
            .iter()
            .map(|event| &**event)
            .filter(|event| self.selection.matches_key(&event.name))
            .collect();
        let states = events.iter().flat_map(|event| [&event.old, &event.new]).flatten().cloned();
        let converted = conversion::shown(&self.api, &self.served, states.collect()).await?;
        let mut converted = converted.into_iter();
        let mut state =
            |stored: &Option<ObjectEntry>| stored.as_ref().and_then(|_| converted.next());
        let mut transitions = Vec::new();
        for event in events {
            let (old, new) = (state(&event.old), state(&event.new));
            transitions.extend(self.transition(&old, &new).map(|transition| (transition, event)));
        }
        Ok(transitions)
    }

    fn fail(&mut self, chunk: &mut Vec<u8>, error: &ApiError) {
        self.encoder.error(chunk, error);
        self.stage = FeedStage::Over;
    }

    fn tick(&mut self, chunk: &mut Vec<u8>) {
        let now = Instant::now();
        if now >= self.ends {
            self.stage = FeedStage::Over;
            return;
        }
        let FeedStage::Live(watcher) = &mut self.stage else { return };
        if self.bookmarks {
            let seen = watcher.seen();
            self.encoder.bookmark(chunk, seen, false);
            self.next_bookmark = now + BOOKMARK_EVERY;
            self.sent_final_bookmark |= now + FINAL_BOOKMARK_LEAD >= self.ends;
        }
    }

    /// A change as this watch sees it: objects enter and leave a selection.
    fn transition(
        &self,
        old: &Option<ObjectEntry>,
        new: &Option<ObjectEntry>,
    ) -> Option<Transition> {
        let matches = |entry: &&ObjectEntry| self.selection.matches(&self.served, entry);
        match (old.as_ref().filter(matches), new.as_ref().filter(matches)) {
            (None, Some(new)) => Some((WatchEventKind::Added, new.clone())),
            (Some(_), Some(new)) => Some((WatchEventKind::Modified, new.clone())),
            (Some(old), None) => Some((WatchEventKind::Deleted, old.clone())),
            (None, None) => None,
        }
    }

    fn encode(&mut self, chunk: &mut Vec<u8>, (kind, entry): &Transition, event: &ObjectEvent) {
        match kind {
            WatchEventKind::Deleted => self.encoder.removed(chunk, entry, event),
            kind => self.encoder.object(chunk, *kind, entry),
        }
    }
}

fn too_old(wanted: Revision, oldest: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {wanted} ({oldest})"))
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Feed").field("table", &self.served.table).finish_non_exhaustive()
    }
}
