//! File operations of replicas, and their results.

use super::Shard;
use crate::ids::ReplicaId;
use crate::run::host::Wanted;
use crate::run::offload::{Done, Job};

impl Shard {
    /// Carries out what a host wants.
    pub(super) fn wanted(&mut self, replica: ReplicaId, wanted: Wanted) {
        for (key, op) in wanted.ops {
            let number = self.next_away;
            self.next_away += 1;
            self.away.insert(number, (replica, key));
            let job = Job { key: number, op };
            match job.is_copy() {
                true => self.long.push(job),
                false => self.offload.submit(job),
            }
        }
        for action in wanted.actions {
            self.session_action(replica, action);
        }
        if wanted.reborn {
            self.drop_connections_to(replica);
        }
    }

    /// Has long writes carried out elsewhere, so that this thread can go on to receive. A lone one
    /// it does itself, since to hand it over would cost more than is gained: true if so.
    pub(super) fn write_long(&mut self, done: &mut Vec<Done>) -> bool {
        let more = std::mem::take(&mut self.more);
        if self.away.len() == 1
            && !more
            && let Some(job) = self.long.pop()
        {
            done.push(self.offload.carry_out(job));
            self.take(done);
            return true;
        }
        self.long.drain(..).for_each(|job| self.offload.submit(job));
        false
    }

    /// Takes what was carried out elsewhere.
    pub(super) fn reap(&mut self, done: &mut Vec<Done>) {
        self.offload.reap(done);
        self.take(done);
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        for one in done.drain(..) {
            let Some((replica, key)) = self.away.remove(&one.key) else { continue };
            let Some(host) = self.hosts.get_mut(&replica) else { continue };
            let mut wanted = Wanted::default();
            host.done(key, one, &mut wanted);
            self.wanted(replica, wanted);
        }
    }
}
