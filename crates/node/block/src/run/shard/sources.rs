//! The event sources of a shard, by token.

use std::os::fd::{AsFd, BorrowedFd};

use super::client::Client;
use super::guest::RingSource;
use super::peer::{Inbound, Outbound};
use crate::run::listen::Listener;
use crate::run::poll::Token;
use crate::run::stream::Stream;

/// Connections inside the shard have numbers from here on; tokens are below.
pub(super) const LOCAL: u64 = 1 << 63;

#[derive(Debug)]
pub(super) enum Source {
    Waker,
    NbdListener {
        volume: usize,
        listener: Listener,
    },
    EngineListener(Listener),
    /// Where guests that share their memory connect.
    GuestListener {
        volume: usize,
        listener: Listener,
    },
    /// A queue of such a guest.
    Ring(Box<RingSource>),
    /// A client of a volume.
    Client(Box<Client>),
    /// An engine elsewhere, that uses a replica here.
    Engine(Box<Inbound>),
    /// A replica elsewhere, that an engine here uses.
    Replica(Box<Outbound>),
}

impl Source {
    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match self {
            Self::Client(client) => Some(&mut client.stream),
            Self::Engine(inbound) => Some(&mut inbound.stream),
            Self::Replica(outbound) => Some(&mut outbound.stream),
            Self::Waker
            | Self::NbdListener { .. }
            | Self::EngineListener(_)
            | Self::GuestListener { .. }
            | Self::Ring(_) => None,
        }
    }

    /// The stream, with everything in it that is to go out.
    pub(super) fn outgoing(&mut self) -> Option<&mut Stream> {
        if let Self::Client(client) = self {
            client.gather();
        }
        self.stream()
    }

    pub(super) fn wants_more(&self) -> bool {
        match self {
            Self::Client(client) => client.wants_more(),
            Self::Engine(inbound) => inbound.wants_more(),
            _ => true,
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Client(client) => client.stream.as_fd(),
            Self::Engine(inbound) => inbound.stream.as_fd(),
            Self::Replica(outbound) => outbound.stream.as_fd(),
            Self::NbdListener { listener, .. }
            | Self::GuestListener { listener, .. }
            | Self::EngineListener(listener) => listener.as_fd(),
            Self::Ring(source) => source.ring.as_fd(),
            Self::Waker => unreachable!("the waker is added by itself"),
        }
    }
}

/// A table with places that are used again; a token of an earlier use finds nothing.
#[derive(Debug, Default)]
pub(super) struct Sources {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    uses: u32,
    source: Option<Source>,
    dirty: bool,
}

impl Sources {
    pub(super) fn insert(&mut self, source: Source) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { uses: 0, source: None, dirty: false });
            u32::try_from(self.places.len() - 1).expect("fewer sockets than that")
        });
        let place = &mut self.places[index as usize];
        place.source = Some(source);
        place.dirty = false;
        u64::from(place.uses) << 32 | u64::from(index)
    }

    fn place(&mut self, token: Token) -> Option<&mut Place> {
        let place = self.places.get_mut((token & 0xffff_ffff) as usize)?;
        (u64::from(place.uses) == token >> 32).then_some(place)
    }

    pub(super) fn get(&self, token: Token) -> Option<&Source> {
        let place = self.places.get((token & 0xffff_ffff) as usize)?;
        place.source.as_ref().filter(|_| u64::from(place.uses) == token >> 32)
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Source> {
        self.place(token)?.source.as_mut()
    }

    /// Whether the source is on the list of those with something to send.
    pub(super) fn dirty(&mut self, token: Token) -> Option<&mut bool> {
        self.place(token).map(|place| &mut place.dirty)
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<Source> {
        let place = self.place(token)?;
        let source = place.source.take()?;
        // Half of the numbers: the other half are connections inside the shard.
        place.uses = (place.uses + 1) & 0x7fff_ffff;
        self.free.push((token & 0xffff_ffff) as u32);
        Some(source)
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = (Token, &Source)> {
        (0u64..).zip(&self.places).filter_map(|(index, place)| {
            Some((u64::from(place.uses) << 32 | index, place.source.as_ref()?))
        })
    }
}
