//! Messages that were encoded a moment ago: subscribers with the same rights share them.
//!
//! Two hundred pages that watch the same machines get each change encoded once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// As many messages are kept; all of them are of the last moments.
const CAPACITY: usize = 256;
/// Larger events are encoded for each subscriber.
const LARGEST: usize = 64 << 10;

/// The event as the API server sent it, and the audience that it is encoded for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct EncodedKey {
    /// User, links and subscription: the other inputs of the message.
    pub(super) audience: Arc<str>,
    pub(super) line: Bytes,
}

#[derive(Debug, Default)]
pub(crate) struct EncodedMessages(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    messages: HashMap<EncodedKey, Utf8Bytes>,
    oldest_first: VecDeque<EncodedKey>,
}

impl EncodedMessages {
    pub(super) fn get(&self, key: &EncodedKey) -> Option<Utf8Bytes> {
        self.0.lock().messages.get(key).cloned()
    }

    pub(super) fn insert(&self, key: EncodedKey, message: Utf8Bytes) {
        if key.line.len() > LARGEST {
            return;
        }
        let mut recent = self.0.lock();
        if recent.messages.insert(key.clone(), message).is_some() {
            return;
        }
        recent.oldest_first.push_back(key);
        if recent.oldest_first.len() > CAPACITY
            && let Some(oldest) = recent.oldest_first.pop_front()
        {
            recent.messages.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_shared_by_audience_and_forgotten_in_order() {
        let encoded = EncodedMessages::default();
        let key = |audience: &str, line: usize| EncodedKey {
            audience: audience.into(),
            line: line.to_string().into(),
        };
        for line in 0..CAPACITY {
            encoded.insert(key("jane", line), Utf8Bytes::from(line.to_string()));
        }
        assert_eq!(encoded.get(&key("jane", 0)).as_deref(), Some("0"));
        assert_eq!(encoded.get(&key("joe", 0)), None, "another user has other rights");
        encoded.insert(key("jane", CAPACITY), "new".into());
        assert_eq!(encoded.get(&key("jane", 0)), None);
        assert_eq!(encoded.get(&key("jane", 1)).as_deref(), Some("1"));
        let large = EncodedKey { audience: "jane".into(), line: vec![b'x'; LARGEST + 1].into() };
        encoded.insert(large.clone(), "large".into());
        assert_eq!(encoded.get(&large), None);
    }
}
