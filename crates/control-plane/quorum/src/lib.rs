//! The etcd of a cluster with several management nodes: its process on this node, its members, and
//! the steps of a node to become or to stop being one.
//!
//! | module | owns |
//! |---|---|
//! | `version` | which releases of etcd are used |
//! | `record` | `etcd.json`: how far this node has come, as a state machine |
//! | `plan` | the next step of a node that becomes a member, and which member may be removed |
//! | `voters` | which nodes vote |
//! | `voter_watch` | supervision of the voters: which voter that is lost is replaced |
//! | `reduction` | whether and how several management nodes become one, with SQLite |
//! | `recovery` | whether a member may go on alone after the loss of the majority |
//! | `members` | the member API of etcd |
//! | `process` | the etcd process of this node, which outlives ours |
//!
//! The crate knows neither Kubernetes nor the keys that objects are stored under.

mod members;
mod plan;
mod process;
mod record;
mod recovery;
mod reduction;
#[cfg(test)]
#[path = "../../controllers/src/seeded_rng.rs"]
mod seeded_rng;
#[cfg(test)]
mod tests;
mod version;
mod voter_watch;
mod voters;

pub use members::{MemberError, Members, TlsFiles};
pub use plan::{
    JoinStep, JoinView, MemberInfo, MemberStatus, RemovalRefusal, WaitReason, join_step, node_of,
    removable,
};
pub use process::{EtcdProcess, EtcdSpec, InitialCluster, ProcessError, RunningEtcd};
pub use record::{EtcdRecord, Phase, PhaseEvent, RecordError, WrongEvent, next_phase};
pub use recovery::{MemberAnswer, RecoveryPlan, RecoveryRefusal, recovery};
pub use reduction::{ManagementNode, ReductionRefusal, VoterState, may_return, reduction};
pub use version::{EtcdVersion, Support, VersionError, find_etcd};
pub use voter_watch::{VoterStep, VoterView, VoterWatch};
pub use voters::VoterCandidate;
