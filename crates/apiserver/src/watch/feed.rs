//! One watch in progress.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::Stop;
use store::{Range, Revision, WatchError, Watcher};
use tokio::time::{Instant, sleep_until};

use crate::api::{Api, ObjectEntry, ObjectEvent};
use crate::call::Call;
use crate::conversion;
use crate::item::ObjectShape;
use crate::negotiate::Form;
use crate::options::ListOptions;
use crate::read::Selection;
use crate::served::Served;
use crate::status::ApiError;
use crate::table;
use crate::watch::encode::{Encoder, Kind};

/// How many events are taken from the log at once.
const BATCH: usize = 256;
/// Chunks are sent when they have about this size.
const CHUNK: usize = 32 * 1024;
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark is sent this long before the end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where the feed stands.
enum Stage {
    /// The state at the start, still to be sent.
    State(VecDeque<ObjectEntry>, Revision),
    Live(Watcher<ObjectShape>),
    /// Nothing more is coming.
    Over,
}

pub(crate) struct Feed {
    api: Api,
    served: Arc<Served>,
    selection: Selection,
    encoder: Encoder,
    stage: Stage,
    /// Entries must be converted before they are shown.
    converts: bool,
    bookmarks: bool,
    /// Mark the end of the initial state for clients that asked for it.
    marks_end: bool,
    next_bookmark: Instant,
    ends: Instant,
    said_farewell: bool,
    stop: Stop,
}

impl Feed {
    pub(super) fn new(
        call: &Call<'_>,
        options: &ListOptions,
        selection: Selection,
        wants_state: bool,
        limit: Duration,
    ) -> Self {
        let api = call.api.clone();
        let now = Instant::now();
        let stage = if wants_state {
            let range = Range { prefix: &selection.prefix, ..Range::default() };
            match api.store.list(&call.served.table, range) {
                Ok(page) => {
                    let entries = page
                        .entries
                        .into_iter()
                        .filter(|entry| selection.matches(&call.served, entry))
                        .collect();
                    Stage::State(entries, page.revision)
                }
                Err(_) => Stage::Over,
            }
        } else {
            let from = options.revision.filter(|revision| *revision != 0);
            let from = from.map_or_else(|| api.store.revision(), Revision::new);
            Stage::State(VecDeque::new(), from)
        };
        Self {
            stop: api.tasks.stop_signal(),
            encoder: Encoder::new(call.served.clone(), call.wanted, table::include(call.query)),
            converts: conversion::is_needed(&call.served)
                && !matches!(call.wanted.form, Form::Metadata(_)),
            served: call.served.clone(),
            selection,
            stage,
            bookmarks: options.bookmarks,
            marks_end: options.initial_events == Some(true),
            next_bookmark: now + BOOKMARK_EVERY,
            ends: now + limit,
            said_farewell: limit <= FAREWELL,
            api,
        }
    }

    /// The next chunk of the stream; `None` ends it. Cancel-safe between chunks.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            match &mut self.stage {
                Stage::Over => return None,
                Stage::State(entries, revision) if self.converts && !entries.is_empty() => {
                    let revision = *revision;
                    let batch: Vec<ObjectEntry> =
                        entries.drain(..entries.len().min(BATCH)).collect();
                    let chunk = self.converted_state(batch).await;
                    if matches!(self.stage, Stage::State(ref left, _) if left.is_empty()) {
                        self.stage = Stage::State(VecDeque::new(), revision);
                    }
                    return Some(chunk);
                }
                Stage::State(entries, revision) => {
                    let revision = *revision;
                    let mut chunk = Vec::new();
                    while let Some(entry) = entries.pop_front() {
                        self.encoder.object(&mut chunk, Kind::Added, &entry);
                        if chunk.len() >= CHUNK {
                            return Some(chunk);
                        }
                    }
                    self.go_live(revision, &mut chunk);
                    if !chunk.is_empty() {
                        return Some(chunk);
                    }
                }
                Stage::Live(_) => {
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
            Ok(watcher) => Stage::Live(watcher),
            Err(compacted) => {
                self.encoder.error(chunk, &too_old(revision, compacted.oldest));
                Stage::Over
            }
        };
    }

    /// Waits for something to send. An empty chunk means: look again.
    async fn live(&mut self) -> Vec<u8> {
        let Stage::Live(watcher) = &mut self.stage else { return Vec::new() };
        let farewell = if self.said_farewell { self.ends } else { self.ends - FAREWELL };
        let wake = if self.bookmarks { self.next_bookmark.min(farewell) } else { self.ends };
        let outcome = tokio::select! {
            events = watcher.next(BATCH) => Some(events),
            () = sleep_until(wake) => None,
            () = self.stop.requested() => {
                self.stage = Stage::Over;
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
                    self.event(&mut chunk, event);
                }
            }
            Some(Err(WatchError::Lagged { oldest })) => {
                self.encoder.error(&mut chunk, &too_old(watcher.seen(), oldest));
                self.stage = Stage::Over;
            }
            Some(Err(WatchError::Closed)) => self.stage = Stage::Over,
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
                    self.encoder.object(&mut chunk, Kind::Added, entry);
                }
            }
            Err(error) => self.fail(&mut chunk, &error),
        }
        chunk
    }

    /// Changes, where a webhook has to convert them.
    async fn converted_events(&mut self, events: &[Arc<ObjectEvent>]) -> Vec<u8> {
        let mut chunk = Vec::new();
        let seen: Vec<_> = events.iter().filter_map(|event| self.seen(event)).collect();
        let entries = seen.iter().map(|(_, entry, _)| entry.clone()).collect();
        match conversion::shown(&self.api, &self.served, entries).await {
            Ok(entries) => {
                for ((kind, _, event), entry) in seen.iter().zip(&entries) {
                    match kind {
                        Kind::Deleted => self.encoder.removed(&mut chunk, entry, event),
                        kind => self.encoder.object(&mut chunk, *kind, entry),
                    }
                }
            }
            Err(error) => self.fail(&mut chunk, &error),
        }
        chunk
    }

    fn fail(&mut self, chunk: &mut Vec<u8>, error: &ApiError) {
        self.encoder.error(chunk, error);
        self.stage = Stage::Over;
    }

    fn tick(&mut self, chunk: &mut Vec<u8>) {
        let now = Instant::now();
        if now >= self.ends {
            self.stage = Stage::Over;
            return;
        }
        let Stage::Live(watcher) = &mut self.stage else { return };
        if self.bookmarks {
            let seen = watcher.seen();
            self.encoder.bookmark(chunk, seen, false);
            self.next_bookmark = now + BOOKMARK_EVERY;
            self.said_farewell |= now + FAREWELL >= self.ends;
        }
    }

    /// A change as this watch sees it: objects enter and leave a selection.
    fn seen<'e, E>(&self, event: &'e E) -> Option<(Kind, ObjectEntry, &'e E)>
    where
        E: std::borrow::Borrow<ObjectEvent>,
    {
        let (selection, served) = (&self.selection, &self.served);
        let change = event.borrow();
        let old = change.old.as_ref().filter(|entry| selection.matches(served, entry));
        let new = change.new.as_ref().filter(|entry| selection.matches(served, entry));
        match (old, new) {
            (None, Some(new)) => Some((Kind::Added, new.clone(), event)),
            (Some(_), Some(new)) => Some((Kind::Modified, new.clone(), event)),
            (Some(old), None) => Some((Kind::Deleted, old.clone(), event)),
            (None, None) => None,
        }
    }

    fn event(&mut self, chunk: &mut Vec<u8>, event: &ObjectEvent) {
        match self.seen(event) {
            Some((Kind::Deleted, old, _)) => self.encoder.removed(chunk, &old, event),
            Some((kind, new, _)) => self.encoder.object(chunk, kind, &new),
            None => {}
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
