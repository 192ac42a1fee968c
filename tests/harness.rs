//! The test harness: servers, clients and bounded waiting.

mod bucket;
mod etcd;
mod foreign;
mod guest;
mod hook;
mod http;
mod kubectl;
mod node;
mod oidc;
mod port;
mod server;
mod small;
mod socket;
mod template;
mod tls;
mod wait;

pub(crate) use bucket::{BUCKET, Bucket, KEY};
pub(crate) use etcd::Etcd;
pub(crate) use foreign::Foreign;
pub(crate) use guest::{FIND, PASSWORD, Shell, disk_of_image};
pub(crate) use hook::{Asked, Hook, Said};
pub(crate) use http::{Events, Http, Reply, block_on};
pub(crate) use kubectl::Kubectl;
pub(crate) use node::{Node, assemble, link};
pub(crate) use oidc::{CLIENT, CLIENT_SECRET, OidcIssuer};
pub(crate) use port::ReservedPort;
pub(crate) use server::{Sheaf, binary};
pub(crate) use small::Small;
pub(crate) use socket::Socket;
pub(crate) use tls::{anonymous_tls, tls};
pub(crate) use wait::{ended, eventually, output_of, poll, poll_slowly};

/// Panics with both texts unless `text` contains `part`.
#[track_caller]
pub(crate) fn assert_has(text: impl AsRef<str>, part: &str) {
    let text = text.as_ref();
    assert!(text.contains(part), "expected to find:\n  {part}\nin:\n{text}");
}
