//! A driver that carries out every operation at once, in the order it is asked: for tools and
//! tests. The ones for production are in [`crate::run`].

use std::collections::BTreeMap;

use super::files::{Files, Place, perform};
use super::replica::Replica;
use super::request::{Action, IoFault, Reply, Request, RequestError, RequestId};

/// A replica with its files.
pub struct Driven<'a> {
    pub replica: Replica,
    pub files: &'a mut dyn Files,
    /// The files of each base, in the order of [`Replica::bases`].
    pub bases: Vec<Box<dyn Files + 'a>>,
    next: u64,
    replies: BTreeMap<RequestId, Result<Reply, RequestError>>,
}

impl std::fmt::Debug for Driven<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driven").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl<'a> Driven<'a> {
    pub fn new(replica: Replica, files: &'a mut dyn Files) -> Self {
        Self { replica, files, bases: Vec::new(), next: 0, replies: BTreeMap::new() }
    }

    /// Carries a request out. Background work is not waited for.
    pub fn request(&mut self, request: Request) -> Result<Reply, RequestError> {
        let id = RequestId(self.next);
        self.next += 1;
        self.replica.submit(id, request);
        self.run();
        self.replies.remove(&id).expect("every request is answered when nothing is left to do")
    }

    /// Does whatever there is to do.
    pub fn run(&mut self) {
        while let Some(action) = self.replica.next_action() {
            match action {
                Action::Reply { id, result } => {
                    self.replies.insert(id, result);
                }
                Action::Io(io) => {
                    let result = match io.file.place() {
                        Place::Own => perform(self.files, io.file, &io.op),
                        Place::Base(base) => match self.bases.get_mut(base as usize) {
                            Some(files) => perform(files.as_mut(), io.file, &io.op),
                            None => Err(IoFault::Errno(2)),
                        },
                    };
                    self.replica.complete(io.id, result);
                }
            }
        }
    }

    /// Lets background work run to its end, or until it stalls.
    pub fn work(&mut self) {
        loop {
            let before = self.replica.status();
            self.replica.grant(1 << 30);
            self.run();
            let after = self.replica.status();
            if after.work.is_none() || after.work.as_ref().is_some_and(|w| w.stalled.is_some()) {
                return;
            }
            debug_assert!(before != after, "background work does not go on");
        }
    }
}
